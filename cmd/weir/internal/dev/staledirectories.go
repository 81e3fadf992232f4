package dev

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
)

const (
	dirPattern = "weir-dev-*"
	ownerFile  = "owner" // its process holds a lock on it as long as it lives
	maxStale   = 100     // directories that one start looks at
)

// own marks dir as the directory of this process until that ends. The caller closes the result in the end.
func own(dir string) (_ *os.File, err error) {
	// By its name the file is there only once it is locked: a cluster that starts at the same moment must not take it for stale.
	early := filepath.Join(dir, ownerFile+".new")
	f, err := os.OpenFile(early, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		err = os.Rename(early, filepath.Join(dir, ownerFile))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// removeStale removes the directories in parent that were marked by own, and whose process has ended without removing them, as
// after SIGKILL. All else stays.
func removeStale(parent string) error {
	found, err := filepath.Glob(filepath.Join(parent, dirPattern))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range found[:min(len(found), maxStale)] {
		if isStale(dir) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

func isStale(dir string) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	if owner, known := info.Sys().(*syscall.Stat_t); !known || int(owner.Uid) != os.Getuid() {
		return false
	}
	f, err := os.OpenFile(filepath.Join(dir, ownerFile), os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false // it has no mark
	}
	defer func() { _ = f.Close() }() // which ends the lock, too
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
