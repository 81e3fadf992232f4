// Command release builds the packages of a release for this machine, from the same .goreleaser.yaml, and prints their paths. It
// reads that file as strictly as goreleaser check does. It is a module of its own so that Weir does not depend on goreleaser.
// With formats, such as deb, it builds these packages only, of the completions and man pages that the directory has from
// another version of the same source.
//
//	cd test/buildpackages && go run . VERSION DIRECTORY [FORMAT...]
package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: release VERSION DIRECTORY [FORMAT...]")
		os.Exit(2)
	}
	if err := release(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release builds the packages of a version in a directory: all, or those of the formats and without the hooks. All paths in the configuration are of the root of the repository.
func release(version, dir string, formats []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.Chdir("../.."); err != nil {
		return err
	}
	project, err := config.Load(".goreleaser.yaml")
	if err != nil {
		return err
	}
	if len(project.Builds) != 1 || len(project.NFPMs) != 1 {
		return fmt.Errorf("%d builds and %d nfpms, want one of each", len(project.Builds), len(project.NFPMs))
	}
	for _, hook := range project.Before.Hooks {
		if len(formats) > 0 {
			break
		}
		// What goreleaser makes in the working tree is made where the packages are.
		if err := run([]string{"SOURCE_DATE_EPOCH=0"}, strings.Fields(strings.ReplaceAll(hook, ".release", dir+"/.release"))...); err != nil {
			return err
		}
	}
	binary := filepath.Join(dir, "weir")
	b := project.Builds[0]
	ldflags := strings.ReplaceAll(strings.Join(b.Ldflags, " "), "{{ .Version }}", version)
	args := append([]string{"go", "build"}, b.Flags...)
	if err := run(b.Env, append(args, "-ldflags", ldflags, "-o", binary, b.Main)...); err != nil {
		return err
	}
	for _, format := range project.NFPMs[0].Formats {
		if len(formats) > 0 && !slices.Contains(formats, format) {
			continue
		}
		if err := build(project.NFPMs[0], format, version, binary, dir); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

func run(env []string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// build builds a package as goreleaser does: of its contents, and of the binary in bindir.
func build(from config.NFPM, format, version, binary, dir string) (err error) {
	mtime := time.Unix(0, 0)
	contents := files.Contents{{Source: binary, Destination: filepath.Join(from.Bindir, "weir"), FileInfo: &files.ContentFileInfo{Mode: 0o755, MTime: mtime}}}
	for _, c := range from.Contents {
		source := c.Source
		if strings.HasPrefix(source, ".release/") {
			source = filepath.Join(dir, source)
		}
		contents = append(contents, &files.Content{Source: source, Destination: c.Destination, Type: c.Type, Packager: c.Packager, FileInfo: &files.ContentFileInfo{Mode: c.FileInfo.Mode, MTime: mtime}})
	}
	scripts := map[string]string{"postinstall": from.Scripts.PostInstall, "preremove": from.Scripts.PreRemove, "postremove": from.Scripts.PostRemove}
	for _, name := range slices.Sorted(maps.Keys(scripts)) {
		if scripts[name] == "" {
			return fmt.Errorf("scripts.%s is missing", name)
		}
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: from.PackageName, Arch: runtime.GOARCH, Platform: "linux", Version: version, Section: from.Section, Maintainer: from.Maintainer,
		Vendor: from.Vendor, Homepage: from.Homepage, Description: from.Description, License: from.License, MTime: mtime,
		Overridables: nfpm.Overridables{
			Contents: contents,
			Scripts:  nfpm.Scripts{PostInstall: scripts["postinstall"], PreRemove: scripts["preremove"], PostRemove: scripts["postremove"]},
		},
	})
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	path := filepath.Join(dir, "weir."+format)
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := packager.Package(info, f); err != nil {
		return err
	}
	fmt.Println(path)
	return nil
}
