package rules

import (
	"fmt"
	"strings"
	"testing"
)

// The number of files looked at is bounded, for a directory of any size.
func TestListingIsBounded(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"deep/": "", "many/": "", "broad/": ""}
	path := "deep/"
	for range maxFilesDepth + 1 {
		path += "d/"
		files[path] = ""
	}
	for i := range maxFiles + 1 {
		files[fmt.Sprintf("many/%d", i)] = "x"
		files[fmt.Sprintf("broad/%d/", i)] = ""
	}
	write(t, dir, files)
	for _, c := range []struct {
		path  string
		which Files
		want  string
	}{
		{"deep", AllFiles, ": more than 1000 directories, or one in the other more than 32 deep"},
		{"broad", AllFiles, ": more than 1000 directories, or one in the other more than 32 deep"},
		{"many", AllFiles, "the directory has more than 1000 rules files"},
		{"broad", YAMLFiles, "the directory has no *.yaml or *.yml file; for no rules, put one there with {domain: default, rules: []}"},
		{"deep", VisibleFiles, ": more than 1000 directories, or one in the other more than 32 deep"},
	} {
		if l := list(dir+"/"+c.path, c.which); l.err == nil || !strings.HasSuffix(l.err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.path, l.err, c.want)
		}
	}
	l := list(dir+"/many", YAMLFiles)
	if n := len(l.unread); n != maxUnread+1 || l.unread[maxUnread].Message != "20 or more other files are not read" {
		t.Errorf("%d are named, the last is %v", n, l.unread[n-1])
	}
}

// Files next to a directory are read although that is missing, as in envoyproxy/ratelimit.
func TestListFilesNextToADirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"config.yaml": "x", "config.d/": "", "config.d/a": "x", "config.d/.b": "x", "configs/": "", "configs/c": "x"})
	for which, want := range map[Files]string{
		RuntimeFiles: "config.d/.b config.d/a config.yaml", VisibleRuntimeFiles: "config.d/a config.yaml", AllFiles: "",
	} {
		l := list(dir+"/config", which)
		got := strings.ReplaceAll(strings.Join(l.names, " "), dir+"/", "")
		if got != want || (l.err == nil) != (want != "") {
			t.Errorf("%v: %s, %v, want %s", which, got, l.err, want)
		}
	}
}
