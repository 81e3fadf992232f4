package snapshot

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Name is the name of the file in a node's data directory.
const Name = "counters.snapshot"

// The names of a file that is not complete, and of one that is of no use, have these at the end.
const (
	newSuffix = ".new"
	badSuffix = ".bad"
)

// Path returns the path of the file in a data directory.
func Path(dir string) string { return filepath.Join(dir, Name) }

// Save replaces the file in a directory by what write adds, and returns how many bytes it has. After an error,
// or if the machine dies, the old file is there.
func Save(dir string, h Head, write func(*Writer) error) (size int64, err error) {
	temporary := Path(dir) + newSuffix
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	size, err = fill(f, h, write)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, Path(dir)); err != nil {
		return 0, err
	}
	return size, syncDir(dir)
}

func fill(f *os.File, h Head, write func(*Writer) error) (size int64, err error) {
	out := bufio.NewWriterSize(f, buffer)
	w, err := NewWriter(out, h)
	if err != nil {
		return 0, err
	}
	if err := write(w); err != nil {
		return 0, err
	}
	if err := w.Finish(); err != nil {
		return 0, err
	}
	return w.Size(), out.Flush()
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Load reads the file in a directory, and calls head and each for what is in it, once all of it was checked.
// The error is os.ErrNotExist if there is none.
func Load(dir string, head func(Head) error, each func(Partition) error) (err error) {
	f, err := os.Open(Path(dir))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it is read only
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("it is no regular file: its mode is %v", info.Mode())
	}
	if err := Read(f, info.Size(), head, func(Partition) error { return nil }); err != nil {
		return err
	}
	if _, err := f.Seek(0, 0); err != nil {
		return err
	}
	return Read(f, info.Size(), func(Head) error { return nil }, each)
}

// SetAside renames the file in a directory, so that it is not read again, and returns its new name. A file that
// was set aside before is replaced.
func SetAside(dir string) (name string, err error) {
	name = Path(dir) + badSuffix
	if err := os.Rename(Path(dir), name); err != nil {
		return "", fmt.Errorf("set aside: %w", err)
	}
	return name, syncDir(dir)
}
