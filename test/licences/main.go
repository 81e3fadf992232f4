// Command licences says what a binary of Weir is made of: it checks that the licence of every module in it is permissive, and
// writes the modules and their licences as a bill of materials in CycloneDX.
//
//	go run ./test/licences BINARY BOM
package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/licensecheck"
)

// permissive are the licences, by SPDX identifier, that modules may have.
var permissive = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// covered is the part of a licence file, in percent, that must be text of licences.
const covered = 75

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: licences BINARY BOM")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "licences:", err)
		os.Exit(1)
	}
}

// check writes the bill of materials of a binary. The error names all modules whose licence is not permissive.
func check(binary, bom string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	dirs, err := directories()
	if err != nil {
		return err
	}
	var problems []error
	var components []cyclonedx.Component
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		licences, err := licencesIn(dirs[m.Path+"@"+m.Version])
		if err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
		}
		components = append(components, component(m.Path, m.Version, licences))
	}
	if len(components) == 0 {
		return fmt.Errorf("%s: has no modules", binary)
	}
	fmt.Printf("%d modules, %d with a licence that is not permitted\n", len(components), len(problems))
	return errors.Join(append(problems, write(bom, info.Main.Path, components))...)
}

// directories returns where modules are, by path@version.
func directories() (map[string]string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Path}}@{{.Version}} {{.Dir}}", "all").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	dirs := make(map[string]string)
	for line := range strings.Lines(string(out)) {
		name, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
		dirs[name] = dir
	}
	return dirs, nil
}

// licencesIn returns the licences of a module, sorted. The error says that one is missing or not permissive.
func licencesIn(dir string) ([]string, error) {
	if dir == "" {
		return nil, errors.New("is not in the cache of modules")
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, file := range files {
		if name := strings.ToUpper(filepath.Base(file)); !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		coverage := licensecheck.Scan(text)
		if coverage.Percent < covered {
			return nil, fmt.Errorf("%s: %.0f %% of it is text of known licences", filepath.Base(file), coverage.Percent)
		}
		for _, match := range coverage.Match {
			if !slices.Contains(permissive, match.ID) {
				return nil, fmt.Errorf("%s: %s is not one of %v", filepath.Base(file), match.ID, permissive)
			}
			found = append(found, match.ID)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("has no licence file")
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func component(path, version string, licences []string) cyclonedx.Component {
	url := fmt.Sprintf("pkg:golang/%s@%s", path, version)
	c := cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
	if len(licences) > 0 {
		c.Licenses = new(cyclonedx.Licenses)
	}
	for _, id := range licences {
		*c.Licenses = append(*c.Licenses, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	return c
}

// write writes the bill of materials to a file.
func write(path, program string, components []cyclonedx.Component) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeApplication, Name: program}}
	bom.Components = &components
	return cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}
