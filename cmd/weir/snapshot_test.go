package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSnapshotErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("weir snapshot 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"export", "f"}, "--data-dir: name the data directory of each node"},
		{[]string{"export"}, "export takes the file to write"},
		{[]string{"export", "f", "--data-dir", dir}, "data directory " + dir + ": no node has run there"},
		{[]string{"import", "f"}, "--data-dir: name the data directory of the node"},
		{[]string{"import", "f", "--data-dir", dir}, "--id: name the node"},
		{[]string{"import", filepath.Join(dir, "f"), "--data-dir", dir, "--id", "a"}, "no such file"},
		{[]string{"import", bad, "--data-dir", dir, "--id", "a"}, bad + ": it is no export of counters"},
		{[]string{"import", bad, "--data-dir", dir, "--id", "a b"}, `a b`},
		{[]string{"import", bad, "--data-dir", dir, "--id", "a", "--cluster", "a/b"}, `a/b`},
	} {
		if got := weir(t, nil, append([]string{"snapshot"}, tc.args...)...); got.code != 2 || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("%q: %+v, want %s", tc.args, got, tc.want)
		}
	}
}
