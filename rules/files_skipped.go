package rules

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Why a file of a directory is not read.
const (
	beginsWithDot   = "its name begins with a dot"
	noYAMLName      = "its name does not end in .yaml or .yml"
	isBelow         = "it is not directly in the directory of the rules, as files must be unless rules-files is all"
	linkToDirectory = "it is a link to a directory, and these are not followed"
)

func unread(path, because string) Problem {
	return Problem{File: path, Message: "is not read: " + because}
}

// passOver notes entries of a directory that are not read, except for files that are read by
// another name: a ConfigMap of Kubernetes has each in a directory behind a dot, too.
func (l *listing) passOver(dir string, entries []fs.DirEntry) {
	if len(entries) == 0 {
		return
	}
	read := make(map[string]bool, len(l.names))
	for _, name := range l.names {
		read[realPath(name)] = true
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		isDir := err == nil && info.IsDir()
		switch {
		case isDir && strings.HasPrefix(e.Name(), "."):
			if hasUnread(path, read) {
				l.note(unread(path, beginsWithDot))
			}
		case isDir && e.Type()&fs.ModeSymlink != 0:
			l.note(unread(path, linkToDirectory))
		case isDir:
			l.passOverBelow(path, read)
		case read[realPath(path)]:
		case strings.HasPrefix(e.Name(), "."):
			l.note(unread(path, beginsWithDot))
		default:
			l.note(unread(path, noYAMLName))
		}
	}
	if n := len(l.unread) - maxUnread; n > 0 {
		l.unread = append(l.unread[:maxUnread], Problem{File: dir, Message: fmt.Sprintf("%d or more other files are not read", n)})
	}
}

// note notes a file that is not read, and a few more than will be shown.
func (l *listing) note(p Problem) {
	if len(l.unread) < 2*maxUnread {
		l.unread = append(l.unread, p)
	}
}

// passOverBelow notes the files of a directory below.
func (l *listing) passOverBelow(dir string, read map[string]bool) {
	walkFiles(dir, func(path string) bool {
		if !read[realPath(path)] {
			l.note(unread(path, isBelow))
		}
		return len(l.unread) < 2*maxUnread
	})
}

// hasUnread reports whether a directory, or one that a link leads to, has a file that is not
// read by another name.
func hasUnread(dir string, read map[string]bool) bool {
	found := false
	walkFiles(realPath(dir), func(path string) bool {
		found = !read[realPath(path)]
		return !found
	})
	return found
}

// walkFiles calls each for the files of a directory and those below, until it returns false
// or there were very many.
func walkFiles(dir string, each func(path string) bool) {
	visits := 0
	// What cannot be opened has no files to name.
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		visits++
		switch {
		case visits > maxFilesVisited:
			return filepath.SkipAll
		case err != nil || e.IsDir():
			return nil
		case !each(path):
			return filepath.SkipAll
		}
		return nil
	})
}

// realPath returns a path without symbolic links, or as it is if it leads nowhere.
func realPath(path string) string {
	if found, err := filepath.EvalSymlinks(path); err == nil {
		return found
	}
	return path
}
