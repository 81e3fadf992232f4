package rules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// When a Source reads its files again.
const (
	// settleTime is how long files must rest after a change: editors and
	// checkouts write in several steps.
	settleTime = 50 * time.Millisecond
	// settleMost bounds the wait where something never rests.
	settleMost = time.Second
	// pollInterval is for changes that the kernel does not tell, as on some
	// network and container mounts.
	pollInterval = 30 * time.Second
)

const (
	maxWatched = 128 // directories; the rest waits for the poll
	maxLinks   = 40  // symbolic links on the way to one file, as in Linux
)

// watchDirs returns the directories in which a change can change what the rules
// of path are: those that hold its files, and those that hold a symbolic link on
// the way there. In this way the ..data link of a ConfigMap is seen, and so are
// releases that a link called "current" selects. Sorted; not more than maxWatched.
func watchDirs(path string, which Files) []string {
	dirs := make(map[string]bool)
	followLinks(path, dirs)
	l := list(path, which)
	for _, at := range slices.Concat(l.dirs, l.links) {
		if len(dirs) < maxWatched {
			followLinks(at, dirs)
		}
	}
	sorted := make([]string, 0, len(dirs))
	for d := range dirs {
		sorted = append(sorted, d)
	}
	slices.Sort(sorted)
	return sorted[:min(len(sorted), maxWatched)]
}

// followLinks adds the directories of all links on the way to path and of what
// is at its end: the file's directory, a directory itself and the one that it is
// in, or, if something is missing, the directory that misses it.
func followLinks(path string, dirs map[string]bool) {
	path, err := filepath.Abs(path)
	if err != nil {
		return // the working directory is gone: the poll will see
	}
	for range maxLinks {
		link, info := firstLink(path)
		dirs[filepath.Dir(link)] = true
		if info == nil || info.Mode()&fs.ModeSymlink == 0 {
			if info != nil && info.IsDir() {
				dirs[link] = true
			}
			return
		}
		target, err := os.Readlink(link)
		if err != nil {
			return
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(link), target)
		}
		path = filepath.Join(target, strings.TrimPrefix(path, link))
	}
}

// firstLink returns the first part of an absolute path that is a symbolic link or
// missing, then without info; all of the path if there is none.
func firstLink(path string) (string, fs.FileInfo) {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != filepath.Separator {
			continue
		}
		info, err := os.Lstat(path[:i])
		if err != nil {
			return path[:i], nil
		}
		if i == len(path) || info.Mode()&fs.ModeSymlink != 0 {
			return path[:i], info
		}
	}
	return path, nil
}

// watch tells when something changes in directories. Owned by Run.
type watch struct {
	log     *slog.Logger
	open    func() (*fsnotify.Watcher, error)
	watcher *fsnotify.Watcher // nil if there is none
}

// cover sees to it that every change of what path leads to is told, from before
// it returns. On an error nothing is told, until the next call.
func (w *watch) cover(path string, which Files) error {
	// Links may change before they are watched, so look again afterwards. Where
	// they change faster than that, the poll has to do.
	for range 10 {
		dirs := watchDirs(path, which)
		if w.watchesOnly(dirs) {
			return nil
		}
		if err := w.reopen(dirs); err != nil {
			w.close()
			return err
		}
	}
	return nil
}

// watchesOnly says whether just these directories are watched. The watcher's own list
// tells which of them have been deleted or moved since, even if their paths lead
// somewhere again.
func (w *watch) watchesOnly(sorted []string) bool {
	return w.watcher != nil && slices.Equal(slices.Sorted(slices.Values(w.watcher.WatchList())), sorted)
}

// reopen takes a new watcher: simpler than to find out which watches of the old
// one are still good.
func (w *watch) reopen(dirs []string) error {
	w.close()
	var err error
	if w.watcher, err = w.open(); err != nil {
		return err
	}
	for _, d := range dirs {
		// One that has just gone is no reason to lose sight of the others.
		if err := w.watcher.Add(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("watch %s: %w", d, err)
		}
	}
	return nil
}

// wait returns when it is time to read again, and says whether that is because again says so.
// There is no more when ctx ends.
func (w *watch) wait(ctx context.Context, again <-chan struct{}) (told, more bool) {
	poll := time.NewTimer(pollInterval)
	defer poll.Stop()
	var settled <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false, false
		case <-again:
			return true, true
		case <-poll.C:
			return false, true
		case <-settled:
			return false, true
		case <-w.events():
		case err := <-w.errors(): // events were lost, or more will be
			w.log.Debug("watching of rules begins again", "error", err)
			w.close()
		}
		if settled == nil {
			poll.Reset(settleMost)
		}
		settled = time.After(settleTime)
	}
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *watch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close() // waits for its goroutine; fails only if closed already
		w.watcher = nil
	}
}
