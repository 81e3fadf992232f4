package certs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestFilesArePrivateAndNeverOverwritten(t *testing.T) {
	a := newAuthority(t, "shop")
	files := issue(t, a, node("a"))
	for _, path := range []string{files.Cert, files.Key, files.CA, filepath.Join(a.dir, caKey)} {
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v %v", path, info.Mode(), err)
		}
	}
	before, _ := os.ReadFile(files.Key)
	if _, err := a.Issue(node("a"), nil, time.Now()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second certificate for a: %v", err)
	}
	if _, err := CreateAuthority(a.dir, "shop", time.Now()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second CA: %v", err)
	}
	if after, _ := os.ReadFile(files.Key); !slices.Equal(before, after) {
		t.Error("the key has changed")
	}
	if err := os.Remove(files.Key); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Issue(node("a"), nil, time.Now()); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a certificate without a key is there: %v", err)
	}
	if _, err := os.Stat(files.Key); !errors.Is(err, fs.ErrNotExist) {
		t.Error("half a pair was left behind")
	}
}
