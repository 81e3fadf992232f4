package rules

import (
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// A link that changes just before it is watched is followed all the same.
func TestCoverLooksAgain(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"1/": "", "1/r.yaml": "", "2/": "", "2/r.yaml": "", "current": "->1", "next": "->2"})
	w := watch{open: func() (*fsnotify.Watcher, error) {
		_ = os.Rename(dir+"/next", dir+"/current") // succeeds once
		return fsnotify.NewWatcher()
	}}
	defer w.close()
	if err := w.cover(dir+"/current/r.yaml", YAMLFiles); err != nil || !w.watchesOnly([]string{dir, dir + "/2"}) {
		t.Errorf("%v, watches %q", err, w.watcher.WatchList())
	}
}

// Links that lead in a circle end, and so does what is not there.
func TestWatchDirs(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "->b", "b": "->a", "sub/": ""})
	for _, c := range []struct{ path, want string }{
		{"a", ""},
		{"none/none/r.yaml", ""},
		{"sub/r.yaml", "/sub"},
	} {
		got := watchDirs(dir+"/"+c.path, YAMLFiles)
		if len(got) != 1 || got[0] != dir+c.want {
			t.Errorf("%s: %q, want %q", c.path, got, dir+c.want)
		}
	}
}

// Changes that never rest do not put off the reading for ever.
func TestWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events, done := make(chan fsnotify.Event), make(chan struct{})
		w := watch{watcher: &fsnotify.Watcher{Events: events}}
		var sender sync.WaitGroup
		sender.Go(func() {
			for {
				select {
				case events <- fsnotify.Event{}:
					time.Sleep(settleTime / 5)
				case <-done:
					return
				}
			}
		})
		begin := time.Now()
		if _, took := w.wait(t.Context(), nil); !took || time.Since(begin) != settleMost {
			t.Errorf("%t after %v, want %v", took, time.Since(begin), settleMost)
		}
		close(done)
		sender.Wait() // it may sleep, and time stands still once this has returned
	})
}

// After an error, such as lost events, watching begins again.
func TestWaitAfterError(t *testing.T) {
	w := watch{log: slog.New(slog.DiscardHandler), open: fsnotify.NewWatcher}
	defer w.close()
	must(t, w.cover(t.TempDir(), YAMLFiles))
	failed := w.watcher
	go func() { failed.Errors <- fsnotify.ErrEventOverflow }()
	if _, more := w.wait(t.Context(), nil); !more || w.watcher != nil {
		t.Errorf("the watcher that failed is still in use: %t", w.watcher == failed)
	}
}
