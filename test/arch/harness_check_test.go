package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// table tells a reader of a violation where to look.
const table = "see the table in test/arch/arch_test.go"

// maxLines is how long a Go file may be, except for generated ones.
const maxLines = 700

// Bounds of what a reader of package cluster, and of those within it, must hold in mind at once: lines of a function, methods of a type, and fields.
const (
	maxFunction = 40
	maxMethods  = 40
	maxFields   = 8 // of a struct of one partition
)

// file is one Go file of the module.
type file struct {
	pkg       string // its directory in the module, such as "cluster/etcd"
	test      bool   // its name ends in _test.go
	generated bool
	set       *token.FileSet
	ast       *ast.File
}

// load parses the Go files of a module, regardless of build constraints.
func load(root fs.FS) ([]file, error) {
	var files []file
	set := token.NewFileSet()
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && isForeign(root, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(set, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, file{path.Dir(name), strings.HasSuffix(name, "_test.go"), ast.IsGenerated(parsed), set, parsed})
		return nil
	})
	return files, err
}

// isForeign reports whether the go command would not look into a directory, or
// would find another module there.
func isForeign(root fs.FS, dir string) bool {
	base := path.Base(dir)
	_, err := fs.Stat(root, path.Join(dir, "go.mod"))
	return strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || base == "vendor" || err == nil
}

// check returns what violates the architecture, in the order of the files.
func check(files []file) []string {
	var violations []string
	algorithms := declaredAlgorithms(files)
	for _, f := range files {
		violations = append(violations, checkImports(f)...)
		violations = append(violations, checkClock(f)...)
		violations = append(violations, checkRelays(f)...)
		violations = append(violations, checkSleep(f)...)
		violations = append(violations, checkLength(f)...)
		violations = append(violations, checkFunctions(f)...)
		violations = append(violations, checkFields(f)...)
		violations = append(violations, checkAlgorithms(f, algorithms)...)
	}
	violations = append(violations, checkMethods(files)...)
	violations = append(violations, checkArrows(files)...)
	return append(violations, checkPackages(files)...)
}

func checkImports(f file) (violations []string) {
	if isWithin(f.pkg, "test") {
		return nil
	}
	allowed, known := imports[f.pkg]
	for _, spec := range f.ast.Imports {
		target, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		inner, isOurs := strings.CutPrefix(target, module+"/")
		switch {
		case isWithin(target, "go.etcd.io/etcd") && !isWithin(f.pkg, etcdPackage):
			violations = append(violations, f.at(spec, "%s must not import %s: only %s may; %s", f.pkg, target, etcdPackage, table))
		case !isOurs:
		case isWithin(inner, "test"):
			violations = append(violations, f.at(spec, "%s must not import %s: no package may import test; %s", f.pkg, inner, table))
		case known && !f.test && !slices.Contains(allowed, inner):
			violations = append(violations, f.at(spec, "%s must not import %s, only %s; %s", f.pkg, inner, orNothing(allowed), table))
		}
	}
	return violations
}

// checkClock finds calls that read the clock in packages that must not.
func checkClock(f file) (violations []string) {
	if f.test || !slices.ContainsFunc(clockless, func(dir string) bool { return isWithin(f.pkg, dir) }) {
		return nil
	}
	for _, use := range f.uses("time", "Now", "Since", "Until") {
		violations = append(violations, f.at(use, "%s must not use time.%s: instants come in with the call", f.pkg, use.Sel.Name))
	}
	return violations
}

// checkRelays finds names of relays in packages that know nothing of them.
func checkRelays(f file) (violations []string) {
	if f.test || !slices.Contains(relayless, f.pkg) {
		return nil
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if name, is := n.(*ast.Ident); is && strings.Contains(strings.ToLower(name.Name), "relay") {
			violations = append(violations, f.at(name, "%s must not name %s: it is told which life is reached, and not how", f.pkg, name.Name))
		}
		return true
	})
	return violations
}

// checkSleep finds tests that wait in real time, and so are slow or flaky.
func checkSleep(f file) (violations []string) {
	if !f.test || f.importName("testing/synctest") != "" {
		return nil
	}
	for _, use := range f.uses("time", "Sleep") {
		violations = append(violations, f.at(use, "time.Sleep outside of testing/synctest: wait for the event itself"))
	}
	return violations
}

// checkLength finds files that are too long to be read as a whole.
func checkLength(f file) []string {
	lines := f.set.File(f.ast.Package).LineCount()
	if f.generated || lines <= maxLines {
		return nil
	}
	return []string{f.at(f.ast, "has %d lines, more than %d: split it by what is in it", lines, maxLines)}
}

// isOfCluster reports whether a file has code of package cluster, or of one within it, neither generated nor of tests.
func (f file) isOfCluster() bool { return isWithin(f.pkg, "cluster") && !f.test && !f.generated }

// checkFunctions finds functions of package cluster that are too long.
func checkFunctions(f file) (violations []string) {
	if !f.isOfCluster() {
		return nil
	}
	for _, d := range f.ast.Decls {
		fn, is := d.(*ast.FuncDecl)
		if !is {
			continue
		}
		if lines := f.set.Position(fn.End()).Line - f.set.Position(fn.Pos()).Line + 1; lines > maxFunction {
			violations = append(violations, f.at(fn.Name, "%s has %d lines, more than %d", fn.Name.Name, lines, maxFunction))
		}
	}
	return violations
}

// checkFields finds structs of partitions that have too many fields.
func checkFields(f file) (violations []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		spec, is := n.(*ast.TypeSpec)
		if !is || f.test || !slices.Contains(ofPartitions, f.pkg+"."+spec.Name.Name) {
			return true
		}
		structure, is := spec.Type.(*ast.StructType)
		if !is {
			violations = append(violations, f.at(spec, "%s is no struct: take it from ofPartitions", spec.Name.Name))
			return true
		}
		fields := 0
		for _, field := range structure.Fields.List {
			fields += max(1, len(field.Names))
		}
		if fields > maxFields {
			violations = append(violations, f.at(spec, "%s has %d fields, more than %d: group those that belong together", spec.Name.Name, fields, maxFields))
		}
		return true
	})
	return violations
}

// declaredTypes returns the names of all types that files declare, with their packages.
func declaredTypes(files []file) (names []string) {
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, is := n.(*ast.TypeSpec); is {
				names = append(names, f.pkg+"."+spec.Name.Name)
			}
			return true
		})
	}
	return names
}

// checkMethods finds types of package cluster that have too many methods.
func checkMethods(files []file) (violations []string) {
	methods := make(map[string]int) // by type, with its package
	for _, f := range files {
		for _, d := range f.ast.Decls {
			if fn, is := d.(*ast.FuncDecl); is && fn.Recv != nil && f.isOfCluster() {
				methods[f.pkg+"."+receiver(fn)]++
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if methods[name] > maxMethods {
			violations = append(violations, fmt.Sprintf("%s has %d methods, more than %d: it is about several things", name, methods[name], maxMethods))
		}
	}
	return violations
}

// receiver returns the name of the type of which a function is a method.
func receiver(fn *ast.FuncDecl) string {
	typ := fn.Recv.List[0].Type
	if pointer, is := typ.(*ast.StarExpr); is {
		typ = pointer.X
	}
	if generic, is := typ.(*ast.IndexExpr); is {
		typ = generic.X
	}
	if name, is := typ.(*ast.Ident); is {
		return name.Name
	}
	return "?"
}

// declaredAlgorithms returns the names of the constants of type Algorithm of package algorithms.
func declaredAlgorithms(files []file) (names []string) {
	for _, f := range files {
		if f.pkg != "algorithms" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok {
				if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Algorithm" {
					for _, name := range spec.Names {
						names = append(names, name.Name)
					}
				}
			}
			return true
		})
	}
	return names
}

// checkAlgorithms finds uses of one algorithm that the author of another one would have to find.
func checkAlgorithms(f file, algorithms []string) (violations []string) {
	if f.test || isWithin(f.pkg, "test") {
		return nil
	}
	for _, use := range f.uses(module+"/algorithms", algorithms...) {
		if !slices.Contains(namedAlgorithms[f.pkg], use.Sel.Name) {
			violations = append(violations, f.at(use, "%s must not name algorithms.%s: ask for a trait, see algorithms/algorithm.go and namedAlgorithms in test/arch/arch_test.go", f.pkg, use.Sel.Name))
		}
	}
	return violations
}

// checkPackages checks that every package is in the table and has one comment.
func checkPackages(files []file) (violations []string) {
	packages := make(map[string][]file)
	for _, f := range files {
		packages[f.pkg] = append(packages[f.pkg], f)
	}
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		if _, known := imports[pkg]; !known && !isWithin(pkg, "test") {
			violations = append(violations, fmt.Sprintf("%s: nothing says what it may import; %s", pkg, table))
		}
		violations = append(violations, checkComment(pkg, packages[pkg])...)
	}
	return violations
}

func checkComment(pkg string, files []file) (violations []string) {
	written := slices.DeleteFunc(slices.Clone(files), func(f file) bool { return f.generated })
	if len(written) == 0 {
		return nil
	}
	// A package may consist of nothing but tests, as this one does.
	if code := slices.DeleteFunc(slices.Clone(written), func(f file) bool { return f.test }); len(code) > 0 {
		written = code
	}
	var documented []string
	for _, f := range written {
		if f.ast.Doc == nil {
			continue
		}
		documented = append(documented, path.Base(f.set.File(f.ast.Package).Name()))
		name := f.ast.Name.Name
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + path.Base(pkg) + " "
		}
		if !strings.HasPrefix(f.ast.Doc.Text(), want) {
			violations = append(violations, f.at(f.ast.Doc, "the package comment must begin with %q", want))
		}
	}
	switch len(documented) {
	case 0:
		violations = append(violations, pkg+": no file has a package comment")
	case 1:
	default:
		violations = append(violations, fmt.Sprintf("%s: more than one file has a package comment: %s", pkg, strings.Join(documented, ", ")))
	}
	return violations
}

// uses finds the selectors of a package by the names given, as in time.Now.
func (f file) uses(importPath string, names ...string) (found []*ast.SelectorExpr) {
	pkg := f.importName(importPath)
	ast.Inspect(f.ast, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || !slices.Contains(names, selector.Sel.Name) {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && x.Name == pkg {
			found = append(found, selector)
		}
		return true
	})
	return found
}

// importName returns the name under which a file imports a package, or nothing.
func (f file) importName(importPath string) string {
	for _, spec := range f.ast.Imports {
		switch {
		case spec.Path.Value != strconv.Quote(importPath):
		case spec.Name != nil:
			return spec.Name.Name
		default:
			return path.Base(importPath)
		}
	}
	return ""
}

// at returns a violation with its place.
func (f file) at(n ast.Node, format string, args ...any) string {
	position := f.set.Position(n.Pos())
	return fmt.Sprintf("%s:%d: ", position.Filename, position.Line) + fmt.Sprintf(format, args...)
}

func isWithin(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

func orNothing(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
