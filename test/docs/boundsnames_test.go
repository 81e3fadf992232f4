package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bounding is what constants are called that bound something.
var bounding = regexp.MustCompile(`^[mM]ax[A-Z]`)

// boundsOf returns the constants of the source files below these directories that bound something, as directory.name.
func boundsOf(t *testing.T, directories ...string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, directory := range directories {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			in, err := filepath.Rel(root, filepath.Dir(path))
			ast.Inspect(file, func(n ast.Node) bool {
				if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
					addBounds(all, filepath.ToSlash(in), d)
				}
				return true
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func addBounds(all map[string]bool, directory string, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		for _, name := range spec.(*ast.ValueSpec).Names {
			if bounding.MatchString(name.Name) {
				all[directory+"."+name.Name] = true
			}
		}
	}
}

// TestBoundsAreTold: a page tells each constant that bounds something, or boundsNotTold says why none does.
func TestBoundsAreTold(t *testing.T) {
	found := boundsOf(t, "algorithms", "api", "client", "cluster", "internal", "node", "overload", "ring", "rules", "shard", "ui")
	if len(found) < 100 {
		t.Fatalf("%d constants: this is not the module's root", len(found))
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		_, told := boundsTold[name]
		_, not := boundsNotTold[name]
		if told == not {
			t.Errorf("%s: is to stand either in boundsTold, with the words of a page, or in boundsNotTold, with a reason", name)
		}
	}
	for name, where := range boundsTold {
		page, words, _ := strings.Cut(where, ": ")
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		if !found[name] || words == "" || !strings.Contains(string(text), words) {
			t.Errorf("%s: there is no such constant, or docs/%s has not %q", name, page, words)
		}
	}
	for name, reason := range boundsNotTold {
		if !found[name] || reason == "" {
			t.Errorf("%s: there is no such constant, or no reason", name)
		}
	}
}
