// Package overload refuses the calls that a node has no time for.
//
// A node that is asked for more than it can answer is late with everything: calls wait until their callers have
// gone, and answers of other nodes are read when no call waits for them. So the node measures how late it is, and
// refuses some calls unread, as many as it takes to be in time for the others. (ADR 28, ADR 40)
package overload

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

const (
	probeEvery = 5 * time.Millisecond // pause between two probes
	memory     = time.Second          // for how long a node counts as busy that has refused calls
	perCall    = 16                   // further checks of a call that take as long as one call more
)

// Control says which calls a node accepts. It is safe for concurrent use; make it with New. Before Run it accepts
// all.
type Control struct {
	accepted   atomic.Uint64 // calls since the last probe
	turnedAway atomic.Uint64 // likewise
	further    atomic.Uint64 // calls that further checks of those accepted are worth
	turn       atomic.Uint64 // calls that came while less than all were accepted
	below      atomic.Uint64 // of each 2^32 turns so many are accepted; all if it is acceptAll
	lateness   atomic.Int64  // of the last probe, in nanoseconds
	target     time.Duration
	started    time.Time
	busy       atomic.Int64 // until when the node counts as busy, since started
	due        atomic.Int64 // when the probe under way was to be sent, since started; 0 if none is
	callers    callers      // watched while the node is late

	refused prometheus.Counter
}

const acceptAll = 1 << 32

// New returns a Control whose metrics are registered with r.
func New(target time.Duration, r prometheus.Registerer) *Control {
	c := &Control{target: target, started: time.Now()}
	c.below.Store(acceptAll)
	f := promauto.With(r)
	c.refused = f.NewCounter(prometheus.CounterOpts{
		Name: "weir_refused_calls_total",
		Help: "Calls, and messages of streams, that this node has refused because it had no time for them.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_accepted_share",
		Help: "Share of calls that this node accepts: below 1 it is asked for more than it can answer, and refuses the rest.",
	}, func() float64 { return float64(c.below.Load()) / acceptAll })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_lateness_seconds",
		Help: "How late this node has read what it last sent to itself, which it does every 5 ms.",
	}, func() float64 { return time.Duration(c.lateness.Load()).Seconds() })
	return c
}

// golden spreads the turns that are accepted evenly: multiples of the golden ratio leave no long gaps.
const golden = 0x9E3779B9

// Accept reports whether the node has time for one more call, which is counted.
func (c *Control) Accept() bool {
	if below := c.below.Load(); below < acceptAll && uint64(uint32(c.turn.Add(1))*golden) >= below {
		c.turnedAway.Add(1)
		c.refused.Inc()
		return false
	}
	c.accepted.Add(1)
	return true
}

// callKey is the key of a call in its context, if it is watched.
type callKey struct{}

// Began is called for each call that has come. While the node is late it returns a context that tells the call, of the connection that conn
// tells from others by its value.
func (c *Control) Began(ctx context.Context, conn func(context.Context) any) context.Context {
	if !c.callers.watching.Load() {
		return ctx
	}
	if call := c.callers.begin(conn(ctx)); call != nil {
		return context.WithValue(ctx, callKey{}, call)
	}
	return ctx
}

// Ended is called with the context of Began when the call was answered.
func (c *Control) Ended(ctx context.Context) {
	if !c.callers.watching.Load() {
		return
	}
	if call, watched := ctx.Value(callKey{}).(*connCalls); watched {
		c.callers.end(call)
	}
}

// Add counts the checks of an accepted call beyond its first. The context is that of Began.
func (c *Control) Add(ctx context.Context, checks int) {
	c.further.Add(uint64(checks) / perCall)
	if checks < perCall || !c.callers.watching.Load() {
		return
	}
	if call, watched := ctx.Value(callKey{}).(*connCalls); watched {
		c.callers.grow(call, 1+checks/perCall)
	}
}

// Busy reports whether the node refuses calls, or has done so in the last second, or is about to: it reads late at
// this moment, and enough waits.
func (c *Control) Busy() bool {
	now := int64(time.Since(c.started))
	due := c.due.Load()
	return now < c.busy.Load() || due > 0 && now-due > int64(c.target) && c.accepted.Load()+c.further.Load() > minWaiting && c.many()
}

// many reports whether many calls wait at once, as far as is known.
func (c *Control) many() bool { return !c.callers.watching.Load() || c.callers.atOnce() > minWaiting }

// Run measures how late the node is until ctx ends, by bytes that it sends to itself through the kernel. They
// wait for the processor and behind all else that has arrived, as calls do.
func (c *Control) Run(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	c.run(ctx, r, w)
	return nil
}

// run probes through what is written to w and read from r, both of which it closes.
func (c *Control) run(ctx context.Context, r io.ReadCloser, w io.WriteCloser) {
	back := make(chan time.Time)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(back)
		for b := make([]byte, 1); ; {
			if _, err := io.ReadFull(r, b); err != nil {
				return
			}
			back <- time.Now()
		}
	})
	defer func() {
		_ = w.Close() // which ends the reader
		for range back {
		}
		reader.Wait()
		_ = r.Close()
	}()
	s := newShare(c.target, time.Now())
	pause := time.NewTimer(probeEvery)
	defer pause.Stop()
	for due := time.Now().Add(probeEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		c.due.Store(int64(due.Sub(c.started)))
		if _, err := w.Write([]byte{1}); err != nil {
			return
		}
		at, ok := <-back
		if !ok {
			return
		}
		c.observe(&s, due, at)
		due = time.Now().Add(probeEvery)
		pause.Reset(probeEvery)
	}
}

// observe records a probe that was due at due and came back at now.
func (c *Control) observe(s *share, due, now time.Time) {
	calls := counts{accepted: c.accepted.Swap(0), refused: c.turnedAway.Swap(0), atOnce: c.callers.atOnce()}
	worth := calls.accepted + c.further.Swap(0)
	s.observe(due, now, calls)
	accepted, late := uint64(s.accepted()*acceptAll), now.Sub(due)
	c.lateness.Store(int64(late))
	c.below.Store(accepted)
	switch {
	case accepted < acceptAll:
		c.busy.Store(int64(now.Add(memory).Sub(c.started)))
	case late > c.target && worth > minWaiting && c.many():
		c.busy.Store(max(c.busy.Load(), int64(now.Add(interval).Sub(c.started))))
	}
	c.callers.watch(s.late())
	c.due.Store(0)
}
