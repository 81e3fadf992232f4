package overload

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const (
	testTarget = 6 * time.Millisecond
	service    = 100 * time.Microsecond // of a call: 10,000 a second
	capacity   = 10_000
)

// processor works off calls and probes in the order in which they come.
type processor struct {
	*Control
	jobs chan func()

	mu      sync.Mutex
	served  int             // guarded by mu
	refused int             // guarded by mu
	waits   []time.Duration // of those served; guarded by mu
}

// inProcessor calls f with a processor that runs and is controlled.
func inProcessor(t *testing.T, f func(t *testing.T, p *processor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &processor{Control: New(testTarget, prometheus.NewRegistry()), jobs: make(chan func(), 1<<20)}
		ctx, stop := context.WithCancel(t.Context())
		r, w := io.Pipe()
		var parts sync.WaitGroup
		parts.Go(func() {
			for job := range p.jobs {
				job()
			}
		})
		parts.Go(func() {
			p.run(ctx, r, probeWriter{p, w})
			close(p.jobs)
		})
		f(t, p)
		stop()
		parts.Wait()
	})
}

// probeWriter has the processor pass on what is written, in its turn.
type probeWriter struct {
	*processor
	io.Closer
}

func (w probeWriter) Write(b []byte) (int, error) {
	w.jobs <- func() { _, _ = w.Closer.(*io.PipeWriter).Write(b) }
	return len(b), nil
}

// offer has so many calls a second come for a while, and returns how many were served and refused of them.
func (p *processor) offer(rate int, during time.Duration) (served, refused int, waits []time.Duration) {
	p.mu.Lock()
	p.served, p.refused, p.waits = 0, 0, nil
	p.mu.Unlock()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(during); time.Now().Before(end); <-tick.C {
		for range rate / 1000 {
			p.call()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served, p.refused, p.waits
}

func (p *processor) call() {
	came := time.Now()
	if !p.Accept() {
		p.mu.Lock()
		p.refused++
		p.mu.Unlock()
		return
	}
	ctx := p.Began(context.Background(), func(context.Context) any { return nil })
	p.jobs <- func() {
		defer p.Ended(ctx)
		wait := time.Since(came)
		time.Sleep(service)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.served++
		p.waits = append(p.waits, wait)
	}
}

// Three times as many calls as the processor can serve: it is kept busy with those that it can serve soon.
func TestOverload(t *testing.T) {
	inProcessor(t, func(t *testing.T, p *processor) {
		p.offer(3*capacity, time.Second) // it takes a moment to find out
		served, refused, waits := p.offer(3*capacity, 5*time.Second)
		if served < 5*capacity*8/10 || refused < 5*capacity*15/10 {
			t.Errorf("%d served and %d refused of %d", served, refused, 5*3*capacity)
		}
		long := 0
		for _, w := range waits {
			if w > 4*testTarget {
				long++
			}
		}
		if long > len(waits)/50 {
			t.Errorf("%d of %d calls waited for more than %v", long, len(waits), 4*testTarget)
		}
		if !p.Busy() || testutil.ToFloat64(p.Control.refused) == 0 {
			t.Errorf("busy %v, %v counted as refused", p.Busy(), testutil.ToFloat64(p.Control.refused))
		}
		p.offer(capacity/2, 800*time.Millisecond) // the load falls
		if _, refused, _ := p.offer(capacity/2, time.Second); refused > 0 {
			t.Errorf("%d are refused of what the processor has time for", refused)
		}
		time.Sleep(time.Second)
		if p.Busy() {
			t.Error("busy although there is nothing to do")
		}
	})
}

// A load that begins at once is refused before its calls have waited for long.
func TestOverloadIsFoundOutSoon(t *testing.T) {
	inProcessor(t, func(t *testing.T, p *processor) {
		p.offer(capacity/2, time.Second)
		if p.offer(3*capacity, 30*time.Millisecond); !p.Busy() {
			t.Error("not busy after 30 ms")
		}
		if _, refused, _ := p.offer(3*capacity, 400*time.Millisecond); refused == 0 {
			t.Error("none refused after 430 ms")
		}
	})
}

// All calls that the processor has time for are accepted.
func TestNoOverload(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rate   int
		pause  time.Duration // of the processor, over and over
		every  time.Duration
		during time.Duration
	}{
		{"idle", 0, 0, time.Second, 2 * time.Second},
		{"half of what it can serve", capacity / 2, 0, time.Second, 2 * time.Second},
		{"most of what it can serve", capacity * 9 / 10, 0, time.Second, 2 * time.Second},
		{"it is halted now and then", capacity / 2, 80 * time.Millisecond, time.Second, 5 * time.Second},
		{"others take the processor, and few wait", 1000, 20 * time.Millisecond, 30 * time.Millisecond, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inProcessor(t, func(t *testing.T, p *processor) {
				pauses := time.NewTicker(tc.every)
				ended := make(chan struct{})
				var halting sync.WaitGroup
				halting.Go(func() {
					for {
						select {
						case <-ended:
							return
						case <-pauses.C:
							p.jobs <- func() { time.Sleep(tc.pause) }
						}
					}
				})
				_, refused, _ := p.offer(tc.rate, tc.during)
				close(ended)
				halting.Wait()
				if refused > 0 {
					t.Errorf("%d refused", refused)
				}
			})
		})
	}
}

// Callers that wait for each answer before they ask again are no overload while there are few of them, however late others make the
// node.
func TestCallersThatWait(t *testing.T) {
	for _, tc := range []struct {
		callers, conns int
		refuses        bool
	}{{1, 1, false}, {24, 1, false}, {24, 24, false}, {96, 2, true}, {96, 96, true}} {
		t.Run(fmt.Sprintf("%d callers on %d connections", tc.callers, tc.conns), func(t *testing.T) {
			inProcessor(t, func(t *testing.T, p *processor) {
				ctx, stop := context.WithCancel(t.Context())
				var asking sync.WaitGroup
				for i := range tc.callers {
					asking.Go(func() { p.askInTurn(ctx, i%tc.conns) })
				}
				asking.Go(func() { // others have the processor for so long that each probe is late
					for ctx.Err() == nil {
						p.jobs <- func() { time.Sleep(56 * time.Millisecond) }
						time.Sleep(60 * time.Millisecond)
					}
				})
				time.Sleep(5 * time.Second)
				stop()
				asking.Wait()
				if p.served < 1000 || (p.refused > 0) != tc.refuses {
					t.Errorf("%d served, %d refused", p.served, p.refused)
				}
			})
		})
	}
}

// askInTurn makes one call after the other on a connection.
func (p *processor) askInTurn(ctx context.Context, conn int) {
	for ctx.Err() == nil {
		if !p.Accept() {
			p.mu.Lock()
			p.refused++
			p.mu.Unlock()
			time.Sleep(time.Millisecond)
			continue
		}
		call := p.Began(ctx, func(context.Context) any { return conn })
		answered := make(chan struct{})
		p.jobs <- func() {
			time.Sleep(service)
			p.Ended(call)
			close(answered)
		}
		<-answered
		p.mu.Lock()
		p.served++
		p.mu.Unlock()
	}
}

// A late node is busy if many checks wait, in however many calls, though it refuses only if many calls do.
func TestBusyWithFewLargeCalls(t *testing.T) {
	for _, tc := range []struct {
		checks int // of each of four calls
		busy   bool
	}{{1, false}, {128, false}, {129, true}, {1000, true}} {
		c, now := New(testTarget, prometheus.NewRegistry()), time.Now()
		c.started = now.Add(-time.Minute)
		s := newShare(testTarget, now)
		calls := func() {
			for range 4 {
				if !c.Accept() {
					t.Fatal("a call was refused")
				}
				c.Add(t.Context(), tc.checks-1)
			}
		}
		calls()
		c.due.Store(int64(now.Sub(c.started) - 2*testTarget)) // a probe under way is late
		during := c.Busy()
		c.observe(&s, now.Add(-2*testTarget), now)
		if after := c.Busy(); during != tc.busy || after != tc.busy {
			t.Errorf("%d checks of each call: busy %v while it is late, %v after it was; want %v", tc.checks, during, after, tc.busy)
		}
	}
}

// Accepted calls are spread evenly at any share.
func TestAcceptedCallsAreSpreadEvenly(t *testing.T) {
	for _, share := range []float64{leastShare, 0.1, 1.0 / 3, 0.5, 0.9} {
		c := New(testTarget, prometheus.NewRegistry())
		c.below.Store(uint64(share * acceptAll))
		const calls = 10_000
		accepted, gap, longest := 0, 0, 0
		for range calls {
			if gap++; c.Accept() {
				accepted++
				longest = max(longest, gap)
				gap = 0
			}
		}
		if want := share * calls; float64(accepted) < want-20 || float64(accepted) > want+20 || float64(longest) > 3/share+1 {
			t.Errorf("share %v: %d of %d accepted, the longest gap %d", share, accepted, calls, longest)
		}
	}
}

// The kernel passes probes on until the context ends.
func TestProbesThroughTheKernel(t *testing.T) {
	c := New(time.Hour, prometheus.NewRegistry())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	for c.lateness.Load() == 0 && t.Context().Err() == nil {
		c.Accept()
	}
	stop()
	if err := <-ended; err != nil || c.Busy() || testutil.ToFloat64(c.refused) > 0 {
		t.Errorf("%v, busy %v, %v refused", err, c.Busy(), testutil.ToFloat64(c.refused))
	}
}

// What an unloaded node pays for a call.
func BenchmarkAccept(b *testing.B) {
	c := New(testTarget, prometheus.NewRegistry())
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Accept()
		}
	})
}

// What an overloaded node pays to refuse a call, apart from its answer.
func BenchmarkRefuse(b *testing.B) {
	c := New(testTarget, prometheus.NewRegistry())
	c.below.Store(0)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Accept()
		}
	})
}

// What a node pays 200 times a second.
func BenchmarkProbe(b *testing.B) {
	r, w, err := os.Pipe()
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	back := make(chan time.Time)
	go func() {
		for one := make([]byte, 1); ; {
			if _, err := r.Read(one); err != nil {
				close(back)
				return
			}
			back <- time.Now()
		}
	}()
	c := New(testTarget, prometheus.NewRegistry())
	s := newShare(testTarget, time.Now())
	for b.Loop() {
		if _, err := w.Write([]byte{1}); err != nil {
			b.Fatal(err)
		}
		c.observe(&s, time.Now(), <-back)
	}
}
