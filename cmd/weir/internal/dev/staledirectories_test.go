package dev

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Only the directory of a process that has ended is removed: none that is in use, and none without the mark.
func TestStaleDirectoriesAreRemoved(t *testing.T) {
	parent := t.TempDir()
	locks := make(map[string]*os.File)
	for _, name := range []string{"weir-dev-stale", "weir-dev-used", "weir-dev-unmarked", "weir-dev-starting", "other"} {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "weir-dev-unmarked" {
			continue
		}
		f, err := own(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		locks[name] = f
	}
	if err := os.Rename(filepath.Join(parent, "weir-dev-starting", ownerFile), filepath.Join(parent, "weir-dev-starting", ownerFile+".new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(parent, "other"), filepath.Join(parent, "weir-dev-link")); err != nil {
		t.Fatal(err)
	}
	// The kernel closes the files of a process that is killed.
	for _, name := range []string{"weir-dev-stale", "weir-dev-starting", "other"} {
		if err := locks[name].Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeStale(parent); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"weir-dev-stale": false, "weir-dev-used": true, "weir-dev-unmarked": true, "weir-dev-starting": true, "weir-dev-link": true, "other": true,
	} {
		if _, err := os.Lstat(filepath.Join(parent, name)); err == nil != want || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want it to be there: %t", name, err, want)
		}
	}
}
