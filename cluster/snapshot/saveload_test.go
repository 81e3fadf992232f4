package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	load := func() (got int, err error) {
		err = Load(dir, func(Head) error { return nil }, func(Partition) error { got++; return nil })
		return got, err
	}
	save := func(n int, fails error) error {
		_, err := Save(dir, head, func(w *Writer) error {
			for _, p := range partitions[:n] {
				if err := w.Add(p); err != nil {
					return err
				}
			}
			return fails
		})
		return err
	}
	if _, err := load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := save(2, nil); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("disk full")
	if err := save(3, failure); !errors.Is(err, failure) {
		t.Errorf("%v, want %v", err, failure)
	}
	if n, err := load(); n != 2 || err != nil {
		t.Errorf("after a failure: %d partitions, %v; want the 2 from before", n, err)
	}
	if err := save(3, nil); err != nil {
		t.Fatal(err)
	}
	if n, err := load(); n != 3 || err != nil {
		t.Errorf("%d partitions, %v", n, err)
	}
	if info, err := os.Stat(Path(dir)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	whole, err := os.ReadFile(Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(Path(dir), whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := load(); n != 0 || !errors.Is(err, errTorn) {
		t.Errorf("torn: %d partitions were handed out, %v", n, err)
	}
	if name, err := SetAside(dir); err != nil || filepath.Base(name) != "counters.snapshot.bad" {
		t.Errorf("%s, %v", name, err)
	}
	if files, err := os.ReadDir(dir); len(files) != 1 || err != nil {
		t.Errorf("%v, %v", files, err)
	}
}
