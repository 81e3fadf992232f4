package rules

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Files says which files of a directory hold rules. A path to a file is that file in any case.
type Files uint8

const (
	// YAMLFiles are the *.yaml and *.yml files directly in the directory, except those whose
	// names begin with a dot.
	YAMLFiles Files = iota
	// AllFiles are all files in the directory and in the directories below.
	AllFiles
	// VisibleFiles are AllFiles without files and directories whose names begin with a dot.
	VisibleFiles
	// RuntimeFiles are AllFiles and the files next to the directory under its name and a dot, such as
	// config.yaml or config.d/limits next to config. So envoyproxy/ratelimit reads RUNTIME_APPDIRECTORY
	// with RUNTIME_WATCH_ROOT: it takes slashes for dots, and then all that begins with the directory's
	// name and a dot.
	RuntimeFiles
	// VisibleRuntimeFiles are RuntimeFiles without what begins with a dot, as there with
	// RUNTIME_IGNOREDOTFILES.
	VisibleRuntimeFiles
)

// FilesNames are the names of the Files, in their order.
var FilesNames = []string{"yaml", "all", "visible", "runtime", "visible-runtime"}

// String returns the name.
func (f Files) String() string { return FilesNames[f] }

// ParseFiles returns the Files of that name, YAMLFiles for an empty one.
func ParseFiles(name string) (Files, error) {
	i := slices.Index(FilesNames, cmp.Or(name, FilesNames[YAMLFiles]))
	if i < 0 {
		return 0, fmt.Errorf("%q is not one of %s", name, strings.Join(FilesNames, ", "))
	}
	return Files(i), nil
}

func (f Files) visible() bool { return f == VisibleFiles || f == VisibleRuntimeFiles }

func (f Files) isRuntime() bool { return f == RuntimeFiles || f == VisibleRuntimeFiles }

// listing are the files of a path.
type listing struct {
	which  Files
	names  []string  // of the files to read, sorted by directory
	dirs   []string  // in which others may come
	links  []string  // symbolic links among the files, and to directories
	unread []Problem // files that are passed over, and why
	err    error     // why there are no names
}

// list finds the files of a path: itself, or those in it.
func list(path string, which Files) *listing {
	l := &listing{which: which}
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.IsDir():
		l.names = []string{path}
	case err == nil && which == YAMLFiles:
		l.listYAML(path)
	case err == nil:
		l.walk(path, 0)
	}
	if which.isRuntime() && (err == nil || errors.Is(err, fs.ErrNotExist)) {
		l.listBeside(path)
	}
	switch {
	case l.err != nil:
	case err != nil && len(l.names) == 0:
		l.err = err
	case len(l.names) == 0 && which == YAMLFiles:
		l.err = errors.New("the directory has no *.yaml or *.yml file; for no rules, put one there with {domain: default, rules: []}")
	case len(l.names) == 0:
		l.err = errors.New("the directory has no file, nor have those below; for no rules, put one there with {domain: default, rules: []}")
	case len(l.names) > maxFiles:
		l.err = fmt.Errorf("the directory has more than %d rules files", maxFiles)
	}
	return l
}

// listYAML lists YAMLFiles.
func (l *listing) listYAML(dir string) {
	entries := l.open(dir)
	var others []fs.DirEntry
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink != 0 {
			l.links = append(l.links, filepath.Join(dir, e.Name()))
		}
		ext := filepath.Ext(e.Name())
		if strings.HasPrefix(e.Name(), ".") || ext != ".yaml" && ext != ".yml" {
			others = append(others, e)
			continue
		}
		l.names = append(l.names, filepath.Join(dir, e.Name()))
	}
	l.passOver(dir, others)
}

// open reads a directory, in order.
func (l *listing) open(dir string) []fs.DirEntry {
	entries, err := os.ReadDir(dir)
	if err != nil && l.err == nil {
		l.err = err
	}
	l.dirs = append(l.dirs, dir)
	return entries
}

// walk lists all files of a directory and those below, as far as that is bounded.
func (l *listing) walk(dir string, depth int) {
	if depth > maxFilesDepth || len(l.dirs) >= maxFiles {
		l.err = fmt.Errorf("%s: more than %d directories, or one in the other more than %d deep", dir, maxFiles, maxFilesDepth)
		return
	}
	for _, e := range l.open(dir) {
		if l.err != nil || len(l.names) > maxFiles {
			return
		}
		l.add(filepath.Join(dir, e.Name()), e, depth)
	}
}

// add lists a file, or those of a directory.
func (l *listing) add(path string, e fs.DirEntry, depth int) {
	switch {
	case l.which.visible() && strings.HasPrefix(e.Name(), "."):
		return
	case e.IsDir():
		l.walk(path, depth+1)
		return
	case e.Type()&fs.ModeSymlink != 0:
		l.links = append(l.links, path)
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			l.unread = append(l.unread, unread(path, linkToDirectory))
			return
		}
	}
	l.names = append(l.names, path)
}

// listBeside lists the files next to path under its name and a dot.
func (l *listing) listBeside(path string) {
	dir := filepath.Dir(path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // what path itself leads to has been listed, or said to be missing
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".") {
			l.add(filepath.Join(dir, e.Name()), e, 0)
		}
	}
}

// hintOfDots ends the problem that two files have one domain, if one of them can be left out.
func (f Files) hintOfDots(paths ...string) string {
	isHidden := func(path string) bool { return strings.Contains(path, string(filepath.Separator)+".") }
	if f == YAMLFiles || f.visible() || !slices.ContainsFunc(paths, isHidden) {
		return ""
	}
	return "; to leave out what begins with a dot, set rules-files to visible, or RUNTIME_IGNOREDOTFILES to true"
}
