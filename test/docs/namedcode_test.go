package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Names in the pages about the code: package.name, package.Type.name, and paths of files.
var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	identifier = regexp.MustCompile(`^(rules/envoy|api/envoy|check|api|rules|cluster|view|replica|ownership|etcd|shard|algorithms|node|client|embedded)((?:\.[A-Za-z]+){1,2})$`)
	sourceFile = regexp.MustCompile(`^[a-z/]+/[a-z_]+\.(go|txt)$`)
)

// root is the repository's.
const root = "../.."

// TestPagesNameWhatExists: the functions, types, fields and files that the pages about the code name are in it.
func TestPagesNameWhatExists(t *testing.T) {
	for page, least := range map[string]int{"docs/architecture.md": 30, "docs/protocol.md": 15} {
		t.Run(page, func(t *testing.T) { namesWhatExists(t, page, least) })
	}
}

// TestProtocolNamesAllFiles: the table of the page about the protocol has each file of package cluster once.
func TestProtocolNamesAllFiles(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs/protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n| file |")
	files, err := filepath.Glob(filepath.Join(root, "cluster/*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, f := range files {
		name := "`cluster/" + filepath.Base(f) + "`"
		if strings.HasSuffix(f, "_test.go") || strings.HasSuffix(f, "/doc.go") {
			continue
		}
		if n := strings.Count(table, name); n != 1 {
			t.Errorf("docs/protocol.md: the table has %s %d times", name, n)
		}
	}
}

// namesWhatExists fails if a page names something of the code that is not there, or fewer than least functions and types.
func namesWhatExists(t *testing.T, name string, least int) {
	page, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	directories := map[string]string{"etcd": "cluster/etcd", "view": "cluster/view", "replica": "cluster/replica", "ownership": "cluster/ownership", "embedded": "client/embedded", "check": "api/internal/check"}
	declared := make(map[string]map[string]bool)
	found := 0
	for _, m := range codeSpan.FindAllStringSubmatch(string(page), -1) {
		if sourceFile.MatchString(m[1]) {
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Error(err)
			}
			continue
		}
		name := identifier.FindStringSubmatch(m[1])
		if name == nil {
			continue
		}
		found++
		if declared[name[1]] == nil {
			directory := directories[name[1]]
			if directory == "" {
				directory = name[1]
			}
			declared[name[1]] = declarations(t, filepath.Join(root, directory))
		}
		if !declared[name[1]][name[2][1:]] {
			t.Errorf("%s does not exist", m[1])
		}
	}
	if found < least {
		t.Fatalf("the page names only %d functions and types", found)
	}
}

// declarations returns the functions and types of a package, and as Type.name their methods and fields.
func declarations(t *testing.T, directory string) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]bool)
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, d := range file.Decls {
			declare(all, d)
		}
	}
	return all
}

func declare(all map[string]bool, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		all[receiver(d)+d.Name.Name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					all[name.Name] = true
				}
			case *ast.TypeSpec:
				all[s.Name.Name] = true
				if fields, isStruct := s.Type.(*ast.StructType); isStruct {
					declareFields(all, s.Name.Name, fields)
				}
			}
		}
	}
}

func declareFields(all map[string]bool, of string, s *ast.StructType) {
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			all[of+"."+name.Name] = true
		}
	}
}

// receiver returns the type of a method and a dot, nothing for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	expr := f.Recv.List[0].Type
	if star, isPointer := expr.(*ast.StarExpr); isPointer {
		expr = star.X
	}
	if name, isName := expr.(*ast.Ident); isName {
		return name.Name + "."
	}
	return ""
}
