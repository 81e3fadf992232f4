package arch

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
)

// maxBack is how many of the arrows between the files of a package of cluster may run back up, of a hundred. An arrow leads from a file to another one that
// declares what it names: a reader who goes from the top file down meets each name before what it stands for.
const maxBack = 10

// checkArrows finds packages of cluster whose files cannot be read from the top down.
func checkArrows(files []file) (violations []string) {
	packages := make(map[string][]file)
	for _, f := range files {
		if f.isOfCluster() {
			packages[f.pkg] = append(packages[f.pkg], f)
		}
	}
	for _, pkg := range slices.Sorted(maps.Keys(packages)) {
		all := arrows(pkg, packages[pkg])
		back := backArrows(all)
		if 100*len(back) > maxBack*len(all) {
			violations = append(violations, fmt.Sprintf("%s: %d of %d arrows between files run back up, more than %d in 100: %s", pkg, len(back), len(all), maxBack, strings.Join(back, ", ")))
		}
	}
	return violations
}

// arrow leads from a file to another one that declares something which the first one names.
type arrow struct{ from, to string }

// arrows returns the arrows between the files of a package.
func arrows(pkg string, files []file) map[arrow]bool {
	info := types.Info{Defs: make(map[*ast.Ident]types.Object), Uses: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: emptyImporter{}, Error: func(error) {}} // what other packages declare is no matter here
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.ast)
	}
	_, _ = conf.Check(pkg, files[0].set, parsed, &info)
	declared := make(map[types.Object]string) // the file that declares it
	each(files, func(name string, id *ast.Ident) {
		if object := info.Defs[id]; object != nil && isOfPackage(object) {
			declared[object] = name
		}
	})
	found := make(map[arrow]bool)
	each(files, func(name string, id *ast.Ident) {
		if to := declared[info.Uses[id]]; to != "" && to != name {
			found[arrow{name, to}] = true
		}
	})
	return found
}

// each calls f for each identifier of files, with the name of its file.
func each(files []file, f func(name string, id *ast.Ident)) {
	for _, file := range files {
		name := path.Base(file.set.File(file.ast.Package).Name())
		ast.Inspect(file.ast, func(n ast.Node) bool {
			if id, is := n.(*ast.Ident); is {
				f(name, id)
			}
			return true
		})
	}
}

// isOfPackage reports whether an object belongs to its package as a whole, or is a method: no field, and nothing within a function.
func isOfPackage(object types.Object) bool {
	fn, is := object.(*types.Func)
	return object.Parent() != nil && object.Parent() == object.Pkg().Scope() || is && fn.Signature().Recv() != nil
}

// emptyImporter has all packages declare nothing.
type emptyImporter struct{}

// Import implements types.Importer.
func (emptyImporter) Import(importPath string) (*types.Package, error) {
	p := types.NewPackage(importPath, path.Base(importPath))
	p.MarkComplete()
	return p, nil
}

// backArrows returns those arrows that run back up in the best order of the files that it finds: there is none in which moving one file leaves fewer.
func backArrows(all map[arrow]bool) (back []string) {
	var order []string // from the top down
	for a := range all {
		for _, name := range []string{a.from, a.to} {
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
		}
	}
	slices.Sort(order)
	for moved := true; moved; {
		moved = false
		for _, name := range slices.Clone(order) {
			moved = move(order, name, all) || moved
		}
	}
	for a := range all {
		if slices.Index(order, a.from) > slices.Index(order, a.to) {
			back = append(back, a.from+" to "+a.to)
		}
	}
	slices.Sort(back)
	return back
}

// move moves a file to where the fewest arrows from and to it run back up, and reports whether these are fewer than before.
func move(order []string, name string, all map[arrow]bool) (better bool) {
	at := slices.Index(order, name)
	rest := slices.Delete(slices.Clone(order), at, at+1)
	back, before := 0, 0 // if it is the first file: all that name it
	for _, other := range rest {
		back += count(all[arrow{other, name}])
	}
	best, to := back, 0
	for i, other := range rest { // past one file after the other
		if i == at {
			before = back
		}
		back += count(all[arrow{name, other}]) - count(all[arrow{other, name}])
		if back < best {
			best, to = back, i+1
		}
	}
	if at == len(rest) {
		before = back
	}
	if best >= before {
		return false
	}
	copy(order, slices.Insert(rest, to, name))
	return true
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
