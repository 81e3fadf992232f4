package rules

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/rules/internal/counter"
)

// Source keeps the rules of a path up to date while Run runs. Its methods are
// safe for concurrent use.
type Source struct {
	current
	path    string
	how     Options
	log     *slog.Logger
	metrics *metrics
	again   chan struct{} // its slot is filled once Reread was called

	// content is what was read last, good or bad. Owned by Run.
	content contentHash
}

// Open loads the rules of a path, as Load does with other options, and fails if they are refused: there is
// no last good set to stay with yet.
func Open(path string, how Options, log *slog.Logger, reg prometheus.Registerer) (*Source, error) {
	sources, unread := readFiles(path, how.Files)
	set, err := how.load(sources, unread)
	if err != nil {
		warn(log, unread)
		return nil, err
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("register the metrics of rules: %w", err)
	}
	m.loadedSet(set)
	s := &Source{path: path, how: how, log: log, metrics: m, again: make(chan struct{}, 1), content: hashContent(sources, unread)}
	s.set.Store(set)
	warn(log, set.Warnings())
	return s, nil
}

// Reread has Run read the files again, and log what comes of it also if they have not changed.
// It does not block.
func (s *Source) Reread() { wakeUp(s.again) }

// wakeUp fills the one slot of a channel.
func wakeUp(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is full already
	}
}

// Run follows the files until ctx ends, and then returns nil. At most one Run may
// run at a time.
//
// Bad rules are refused whole and logged once; the set in force stays until they
// are good. So it does while the files are gone.
func (s *Source) Run(ctx context.Context) error {
	return s.run(ctx, fsnotify.NewWatcher)
}

func (s *Source) run(ctx context.Context, open func() (*fsnotify.Watcher, error)) error {
	if s.path == "" {
		<-ctx.Done()
		return nil
	}
	w := watch{log: s.log, open: open}
	defer w.close()
	for blind := false; ; {
		// Watch first, then read: what changes in between is noticed.
		err := w.cover(s.path, s.how.Files)
		if err != nil && !blind {
			s.log.Warn("rules cannot be watched, only polled", "path", s.path, "interval", pollInterval, "error", err)
		}
		blind = err != nil
		s.reload()
		again, more := w.wait(ctx, s.again)
		if !more {
			return nil
		}
		if again {
			s.content = contentHash{} // of nothing
		}
	}
}

// reload reads the files and puts them in force if they are good and new.
func (s *Source) reload() {
	sources, unread := readFiles(s.path, s.how.Files)
	content := hashContent(sources, unread)
	if content == s.content {
		return
	}
	s.content = content
	set, err := s.how.load(sources, unread)
	if err != nil {
		s.refuse(err, s.metrics, s.log, s.path)
		return
	}
	s.use(set, s.metrics, s.log, s.path)
}

func warn(log *slog.Logger, warnings []Problem) {
	for _, p := range warnings {
		log.Warn("rules: " + p.String())
	}
}

// contentHash tells whether files have changed since they were read last.
type contentHash [sha256.Size]byte

func hashContent(sources []fileContent, unread []Problem) contentHash {
	hash := sha256.New()
	var b []byte
	for _, p := range unread {
		b = counter.AppendText(b, p.String())
	}
	hash.Write(b)
	for _, src := range sources {
		b = counter.AppendText(b[:0], src.name)
		b = appendFlag(b, src.err != nil)
		if src.err != nil {
			b = counter.AppendText(b, src.err.Error())
		}
		b = counter.AppendText(b, src.data)
		hash.Write(b)
	}
	return contentHash(hash.Sum(nil))
}

func appendFlag(b []byte, set bool) []byte {
	if set {
		return append(b, 1)
	}
	return append(b, 0)
}
