// Package decisionlog writes what checks were told, as lines of JSON. It never makes a check wait: lines that the writer
// does not keep up with are dropped, and counted.
package decisionlog

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Bounds of what waits to be written.
const (
	maxPending = 4 << 20   // bytes of all lines
	maxLine    = 64 << 10  // bytes of one line
	maxWrite   = 256 << 10 // bytes that are written at once: whole lines
	closeGrace = time.Second
)

// Which checks are logged.
const (
	Denied  = "denied"  // those that were denied
	Sampled = "sampled" // a share of all, by counter
	All     = "all"
)

// How the values of entries are written.
const (
	Hashed = "hashed" // as a hash with the cluster's secret
	Clear  = "clear"  // as the caller has sent them
)

// Whiches and Forms list the values of Config.Which and Config.Keys.
var (
	Whiches = []string{Denied, Sampled, All}
	Forms   = []string{Hashed, Clear}
)

// Config says what is logged and where to. All fields without a word to the contrary are required, but Share only for Sampled.
type Config struct {
	// Node is the id of this node.
	Node string
	// Which is one of Whiches, and Keys one of Forms.
	Which, Keys string
	// Share is that of the counters whose checks are logged, above 0 and up to 1.
	Share float64
	// To is what lines are written to, from one goroutine.
	To io.Writer
	// CloseTo, if it is not nil, closes what To has open, which the next Write opens again. It is called from the same
	// goroutine as To: on a file system that hangs it waits as long.
	CloseTo func() error
	// Torn says that To ends within a line, as after a crash. The first line begins with a newline then.
	Torn bool
	// Metrics is where the log's metrics are registered.
	Metrics prometheus.Registerer
	// Logger is told when lines cannot be written, and when they can be again.
	Logger *slog.Logger
}

// Log is the decision log of one node. It is safe for concurrent use; make it with New.
type Log struct {
	config  Config
	sampled uint64 // checks are logged whose mixed counter is below it, or equal
	lines   prometheus.Counter
	dropped [reasons]prometheus.Counter
	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}

	torn bool // the last write has ended within a line. Owned by run.

	mu      sync.Mutex
	pending []byte // guarded by mu; len(pending) <= maxPending
	reopen  bool   // guarded by mu; before pending is written
	closed  bool   // guarded by mu
}

type reason int

const (
	full reason = iota
	tooLong
	notWritten
	reasons // how many there are
)

// New returns a log that writes until Close.
func New(c Config) *Log {
	f := promauto.With(c.Metrics)
	dropped := f.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_decision_log_dropped_lines_total",
		Help: "Lines of the decision log that were dropped, by reason: full (4 MiB waited for the writer), too_long (a line above 64 KiB), write (the file could not be written).",
	}, []string{"reason"})
	l := &Log{
		config: c,
		torn:   c.Torn,
		lines: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_decision_log_lines_total",
			Help: "Lines of the decision log that were written.",
		}),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	for r, name := range [reasons]string{full: "full", tooLong: "too_long", notWritten: "write"} {
		l.dropped[r] = dropped.WithLabelValues(name)
	}
	if l.sampled = math.MaxUint64; c.Share < 1 {
		l.sampled = uint64(c.Share * math.MaxUint64)
	}
	go l.run()
	return l
}

// Wants reports whether a check is logged. Counter is a number of its first counter, evenly distributed, or 0 if it has
// none: then a sample is drawn.
func (l *Log) Wants(denied bool, counter uint64) bool {
	switch l.config.Which {
	case Denied:
		return denied
	case Sampled:
		if counter == 0 {
			return rand.Uint64() <= l.sampled
		}
		return mix(counter) <= l.sampled
	}
	return true
}

// mix distributes what partitions and rollouts go by already: murmur3's finalizer.
func mix(v uint64) uint64 {
	v = (v ^ v>>33) * 0xff51afd7ed558ccd
	v = (v ^ v>>33) * 0xc4ceb9fe1a85ec53
	return v ^ v>>33
}

// Clear reports whether values are written as they are.
func (l *Log) Clear() bool { return l.config.Keys == Clear }

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// Add completes a line, and has it written. It does not wait, and keeps nothing of the line.
func (l *Log) Add(line *Line) {
	line.Version, line.Node, line.Keys = Version, l.config.Node, l.config.Keys
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	*buffer = line.AppendTo((*buffer)[:0])
	if len(*buffer) > maxLine {
		l.dropped[tooLong].Inc()
		*buffer = nil
		return
	}
	if !l.enqueue(*buffer) {
		l.dropped[full].Inc()
		return
	}
	l.rouse()
}

func (l *Log) rouse() {
	select {
	case l.wake <- struct{}{}:
	default: // the writer is about to look
	}
}

// Reopen has the writer close what it has open, and open it again by its name for the next line. It does not wait.
func (l *Log) Reopen() {
	l.mu.Lock()
	l.reopen = true
	l.mu.Unlock()
	l.rouse()
}

// closeTo has To opened again by the next line.
func (l *Log) closeTo() {
	if l.config.CloseTo == nil {
		return
	}
	if err := l.config.CloseTo(); err != nil {
		l.config.Logger.Warn("decision log not closed", "error", err)
	}
}

// enqueue reports whether there was room.
func (l *Log) enqueue(line []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending)+len(line) > maxPending {
		return false
	}
	l.pending = append(l.pending, line...)
	return true
}

// run writes until stop, and then what is left.
func (l *Log) run() {
	defer close(l.done)
	defer l.closeTo()
	var failing bool
	var spare []byte
	for stopped := false; !stopped; {
		select {
		case <-l.wake:
		case <-l.stop:
			stopped = true
		}
		l.mu.Lock()
		lines := l.pending
		l.pending = spare[:0]
		reopen := l.reopen
		l.reopen = false
		l.mu.Unlock()
		spare = lines
		if reopen {
			l.closeTo()
		}
		for len(lines) > 0 {
			var part []byte
			part, lines = cut(lines)
			failing = l.write(part, failing)
		}
	}
}

// cut returns whole lines up to maxWrite, and the rest.
func cut(lines []byte) (part, rest []byte) {
	if len(lines) <= maxWrite {
		return lines, nil
	}
	n := bytes.LastIndexByte(lines[:maxWrite], '\n') + 1
	return lines[:n], lines[n:]
}

var newline = []byte{'\n'}

// write writes whole lines, and reports whether that failed. It logs a change of that. What a failure has left of a line,
// as of a disk that was full, gets a line of its own.
func (l *Log) write(lines []byte, failing bool) bool {
	var err error
	n := 0
	if l.torn {
		_, err = l.config.To.Write(newline)
		l.torn = err != nil
	}
	if err == nil {
		n, err = l.config.To.Write(lines)
		l.torn = n > 0 && lines[n-1] != '\n'
	}
	written := bytes.Count(lines[:n], newline)
	l.lines.Add(float64(written))
	l.dropped[notWritten].Add(float64(bytes.Count(lines, newline) - written))
	switch {
	case err != nil && !failing:
		l.config.Logger.Error("decision log cannot be written: lines are dropped", "error", err)
	case err == nil && failing:
		l.config.Logger.Info("decision log can be written again")
	}
	return err != nil
}

// Close has what waits written and To closed, for a second at most, and drops lines from then on. The error says that the
// writer still hangs: To is left as it is then.
func (l *Log) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if !closed {
		close(l.stop)
	}
	timer := time.NewTimer(closeGrace)
	defer timer.Stop()
	select {
	case <-l.done:
		return nil
	case <-timer.C:
		return fmt.Errorf("decision log: its last lines were not written within %v", closeGrace)
	}
}
