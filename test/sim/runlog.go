package sim

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// RunLog is what happened in a run. Its methods may be called from several goroutines.
type RunLog struct {
	start time.Time

	mu      sync.Mutex
	entries []entry // guarded by mu
}

type entry struct {
	at        time.Duration
	who, what string
}

func (t *RunLog) now() time.Duration { return time.Since(t.start) }

func (t *RunLog) add(who, format string, args ...any) { t.addAt(t.now(), who, format, args...) }

func (t *RunLog) addAt(at time.Duration, who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries = append(t.entries, entry{at, who, fmt.Sprintf(format, args...)})
}

// String returns one line for every event, in their order.
func (t *RunLog) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.SortStableFunc(t.entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for _, e := range t.entries {
		fmt.Fprintf(&b, "%9.3fs  %-8s  %s\n", e.at.Seconds(), e.who, e.what)
	}
	return b.String()
}

// logger returns a logger that writes a node's messages into the run log, until dead, and less important
// ones about one partition into the record.
func (t *RunLog) logger(who string, dead *atomic.Bool, into *record) *slog.Logger {
	return slog.New(handler{t, into, who, dead})
}

type handler struct {
	runLog *RunLog
	record *record
	who    string
	dead   *atomic.Bool
}

// Enabled implements slog.Handler.
func (h handler) Enabled(context.Context, slog.Level) bool { return !h.dead.Load() }

// Handle implements slog.Handler.
func (h handler) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		h.runLog.add(h.who, "%s", said(r))
	} else {
		h.noted(r)
	}
	return nil
}

// WithAttrs implements slog.Handler. Nodes do not use it.
func (h handler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler. Nodes do not use it.
func (h handler) WithGroup(string) slog.Handler { return h }
