package decisionlog

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func newLog(which string, share float64, to io.Writer, logger io.Writer) *Log {
	return New(Config{Node: "n", Which: which, Keys: Clear, Share: share, To: to, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(logger, nil))})
}

// gate is a writer that waits until it is opened, and keeps what it was given.
type gate struct {
	open chan struct{}
	mu   sync.Mutex
	text []byte
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.open
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(b) > maxWrite || b[len(b)-1] != '\n' {
		return 0, errors.New("not whole lines, or too many")
	}
	g.text = append(g.text, b...)
	return len(b), nil
}

// A writer that hangs makes no check wait: what is more than the bound is dropped and counted, and all else is written
// once it goes on.
func TestLinesAreDroppedRatherThanWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		l := newLog(All, 1, g, io.Discard)
		line := Line{Domain: strings.Repeat("d", 1000)}
		size := len((&Line{Version: Version, Node: "n", Keys: Clear, Domain: line.Domain}).AppendTo(nil))
		l.Add(&line)
		synctest.Wait() // the writer hangs with the first
		const n = 2 * maxPending / 1000
		for range n {
			l.Add(&line)
		}
		fits := maxPending / size
		if dropped := testutil.ToFloat64(l.dropped[full]); int(dropped) != n-fits {
			t.Errorf("%v of %d lines dropped, want %d", dropped, n, n-fits)
		}
		close(g.open)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if written := bytes.Count(g.text, []byte("\n")); written != 1+fits || int(testutil.ToFloat64(l.lines)) != 1+fits {
			t.Errorf("%d lines written, %v counted, want %d", written, testutil.ToFloat64(l.lines), 1+fits)
		}
		l.Add(&line)
		if dropped := testutil.ToFloat64(l.dropped[full]); int(dropped) != n-fits+1 {
			t.Error("a line after Close was not dropped")
		}
	})
}

// A stop waits for a writer that hangs, for a second.
func TestCloseWaitsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		l := newLog(All, 1, g, io.Discard)
		l.Add(&Line{})
		start := time.Now()
		if err := l.Close(); err == nil || time.Since(start) != closeGrace {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		close(g.open)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Lines that are too long, or cannot be written, are counted, and the log says once that it fails.
func TestLinesThatCannotBeWritten(t *testing.T) {
	var logged bytes.Buffer
	l := newLog(All, 1, brokenWriter{}, &logged)
	l.Add(&Line{Domain: strings.Repeat("d", maxLine)})
	l.Add(&Line{})
	l.Add(&Line{})
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if long, failed := testutil.ToFloat64(l.dropped[tooLong]), testutil.ToFloat64(l.dropped[notWritten]); long != 1 || failed != 2 {
		t.Errorf("%v too long, %v not written", long, failed)
	}
	if n := strings.Count(logged.String(), "disk full"); n != 1 {
		t.Errorf("logged %d times: %s", n, &logged)
	}
}

// A line of which a full disk took a part ends there, and the next one is whole.
func TestLineAfterATornOne(t *testing.T) {
	for _, torn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := &smallWriter{room: 10}
			l := New(Config{Node: "n", Which: All, Keys: Clear, To: w, Torn: torn, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
			l.Add(&Line{})
			synctest.Wait()
			l.Add(&Line{}) // there is no room for a newline
			synctest.Wait()
			w.room = 1 << 20
			l.Add(&Line{})
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			whole := string((&Line{Version: Version, Node: "n", Keys: Clear}).AppendTo(nil))
			want := whole[:10] + "\n" + whole
			if torn {
				want = "\n" + whole[:9] + "\n" + whole
			}
			if string(w.text) != want {
				t.Errorf("%q, want %q", w.text, want)
			}
			if lines, failed := testutil.ToFloat64(l.lines), testutil.ToFloat64(l.dropped[notWritten]); lines != 1 || failed != 2 {
				t.Errorf("%v lines written and %v not, want 1 and 2", lines, failed)
			}
		})
	}
}

// smallWriter has room for some bytes, as a disk has.
type smallWriter struct {
	room int
	text []byte
}

func (w *smallWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.room)
	w.room -= n
	w.text = append(w.text, b[:n]...)
	if n < len(b) {
		return n, errors.New("disk full")
	}
	return n, nil
}

// Opening again waits for no writer, and comes before the lines that are added after it.
func TestReopenWaitsForNoWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{open: make(chan struct{})}
		closed := make([]int, 0, 2) // how many lines there were
		l := New(Config{
			Node: "n", Which: All, Keys: Clear, To: g, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
			CloseTo: func() error { closed = append(closed, bytes.Count(g.text, newline)); return nil },
		})
		l.Add(&Line{})
		synctest.Wait() // the writer hangs with it
		l.Reopen()
		l.Add(&Line{})
		close(g.open)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if !slices.Equal(closed, []int{1, 2}) {
			t.Errorf("closed after %v lines, want after 1 and 2", closed)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// A sample is of counters: all checks of one are in it, or none. It is the same on all nodes, and does not depend on
// the bits by which partitions are chosen.
func TestSampleIsOfCounters(t *testing.T) {
	a, b := newLog(Sampled, 0.1, io.Discard, io.Discard), newLog(Sampled, 0.1, io.Discard, io.Discard)
	defer func() { _, _ = a.Close(), b.Close() }()
	const n = 100_000
	// Of one partition, and of one share of a rollout.
	for _, of := range []func() uint64{
		func() uint64 { return rand.Uint64() << 32 }, func() uint64 { return rand.Uint64()>>32 | 7<<32 }, func() uint64 { return ^(rand.Uint64() >> 32) },
	} {
		in := 0
		for range n {
			counter := of()
			wants := a.Wants(false, counter)
			if wants != a.Wants(true, counter) || wants != b.Wants(false, counter) {
				t.Fatal("of one counter some checks are logged, and some not")
			}
			if wants {
				in++
			}
		}
		if in < n/10-n/100 || in > n/10+n/100 {
			t.Errorf("%d of %d counters are in a sample of a tenth", in, n)
		}
	}
	drawn := 0
	for range n {
		if a.Wants(true, 0) {
			drawn++
		}
	}
	if drawn < n/10-n/100 || drawn > n/10+n/100 {
		t.Errorf("%d of %d checks without a counter", drawn, n)
	}
	all := newLog(Sampled, 1, io.Discard, io.Discard)
	defer func() { _ = all.Close() }()
	if !all.Wants(false, 0) || !all.Wants(false, 1<<63+12345) {
		t.Error("a share of 1 leaves something out")
	}
}

func TestWants(t *testing.T) {
	for which, want := range map[string][2]bool{Denied: {false, true}, All: {true, true}} {
		l := newLog(which, 0.01, io.Discard, io.Discard)
		if l.Wants(false, 7) != want[0] || l.Wants(true, 7) != want[1] {
			t.Errorf("%s: %t for what is allowed, %t for what is denied", which, l.Wants(false, 7), l.Wants(true, 7))
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
