package arch

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// packagesPage lists each package that other modules can import.
const packagesPage = "../../docs/packages.md"

// TestPackagesPage compares the tables of docs/packages.md with the packages of the module.
func TestPackagesPage(t *testing.T) {
	page, err := os.ReadFile(packagesPage)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9/]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		listed = append(listed, row[1])
	}
	files, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range checkListed(files, listed) {
		t.Error(violation)
	}
}

// checkListed returns the importable packages that the page lacks, and its entries that are no such package
// or stand there twice.
func checkListed(files []file, listed []string) (violations []string) {
	importable := make(map[string]bool)
	for _, f := range files {
		if !isWithin(f.pkg, "test") && !slices.Contains(strings.Split(f.pkg, "/"), "internal") {
			importable[f.pkg] = true
		}
	}
	for i, name := range listed {
		switch {
		case !importable[name]:
			violations = append(violations, "docs/packages.md lists "+name+", which is no package that other modules can import")
		case slices.Contains(listed[:i], name):
			violations = append(violations, "docs/packages.md lists "+name+" twice")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(importable)) {
		if !slices.Contains(listed, name) {
			violations = append(violations, "docs/packages.md lacks the package "+name)
		}
	}
	return violations
}

func TestCheckListed(t *testing.T) {
	files := []file{{pkg: "client"}, {pkg: "client/internal/middleware"}, {pkg: "ring"}, {pkg: "test/arch"}}
	got := checkListed(files, []string{"client", "client", "shard"})
	want := []string{
		"docs/packages.md lists client twice",
		"docs/packages.md lists shard, which is no package that other modules can import",
		"docs/packages.md lacks the package ring",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
