// Package overload refuses the calls that a node has no time for.
//
// A node that is asked for more than it can answer is late with everything: calls wait until their callers have
// gone, and answers of other nodes are read when no call waits for them. So the node measures how late it is, and
// refuses some calls unread, as many as it takes to be in time for the others. It divides its time among domains.
// (ADR 28, ADR 36, ADR 40)
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
	perCall    = 16                   // further checks of a call that take as long as one call more; so a check is a part of a call
)

// Control says which calls a node accepts. It is safe for concurrent use; make it with New. Before Run it accepts
// all.
type Control struct {
	accepted   atomic.Int64  // calls since the last probe
	further    atomic.Int64  // checks of these beyond the first of each
	turnedAway atomic.Int64  // work of calls that were refused once they were read, in perCall parts of a call
	turn       atomic.Uint64 // calls that came while work was divided
	share      atomic.Uint64 // of all work that is accepted, in 2^32nds
	lateness   atomic.Int64  // of the last probe, in nanoseconds
	target     time.Duration
	started    time.Time
	busy       atomic.Int64 // until when the node counts as busy, since started
	due        atomic.Int64 // when the probe under way was to be sent, since started; 0 if none is
	callers    callers      // watched while the node is late
	dividing   atomic.Bool  // true while the node is late or refuses calls: they are counted by domain
	accounts   *accounts

	refused prometheus.Counter
}

const acceptAll = 1 << 32

// New returns a Control whose metrics are registered with r. Domains that are not in weights have the weight 1.
func New(target time.Duration, weights map[string]float64, r prometheus.Registerer) *Control {
	c := &Control{target: target, started: time.Now(), accounts: newAccounts(weights)}
	c.share.Store(acceptAll)
	f := promauto.With(r)
	c.refused = f.NewCounter(prometheus.CounterOpts{
		Name: "weir_refused_calls_total",
		Help: "Calls, and messages of streams, that this node has refused because it had no time for them, or for batches because the owners of their keys had none.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_accepted_share",
		Help: "Share of calls that this node accepts: below 1 it is asked for more than it can answer, and refuses the rest.",
	}, func() float64 { return float64(c.share.Load()) / acceptAll })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_lateness_seconds",
		Help: "How late this node has read what it last sent to itself, which it does every 5 ms.",
	}, func() float64 { return time.Duration(c.lateness.Load()).Seconds() })
	return c
}

// golden spreads the turns that are accepted evenly: multiples of the golden ratio leave no long gaps.
const golden = 0x9E3779B9

// draw returns a number below 2^32, by which a call is accepted or not.
func (c *Control) draw() uint64 { return uint64(uint32(c.turn.Add(1) * golden)) }

// Origin returns of a call's context what its connection remembers, nil if that is not known, and a value that calls on one connection
// share.
type Origin func(context.Context) (*Conn, any)

// call is one that has come while work is divided.
type call struct {
	conn    *Conn
	draw    uint64
	account int        // in which it is counted
	work    int        // in perCall parts of a call; 0 once it is refused
	waits   *connCalls // nil if it is not watched

	unwatch func() bool // true if its caller has not gone, which does not count any more then; nil if waits is
}

// callKey is the key of a *call in its context.
type callKey struct{}

// Accept reports whether the node has time for one more call, before that is read. The context that it returns is for Admit and Ended.
func (c *Control) Accept(ctx context.Context, from Origin) (context.Context, bool) {
	if c.dividing.Load() {
		return c.begin(ctx, from, true)
	}
	c.accepted.Add(1)
	return ctx, true
}

// Began is Accept for calls that are read in any case.
func (c *Control) Began(ctx context.Context, from Origin) context.Context {
	ctx, _ = c.begin(ctx, from, false)
	return ctx
}

// begin counts a call: for the domain that its connection has asked for last, until it says for which one it asks.
func (c *Control) begin(ctx context.Context, from Origin, unread bool) (context.Context, bool) {
	if !c.dividing.Load() {
		c.accepted.Add(1)
		return ctx, true
	}
	conn, id := from(ctx)
	draw, account := c.draw(), conn.newest()
	if unread && !conn.accepts(c.accounts, draw) {
		c.accounts.all[account].unread.Add(1)
		c.refused.Inc()
		return ctx, false
	}
	c.accepted.Add(1)
	c.accounts.count(account, 1, perCall)
	one := &call{conn: conn, draw: draw, account: account, work: perCall}
	if c.callers.watching.Load() {
		if one.waits = c.callers.begin(id); one.waits != nil { // its caller may go before it is answered
			one.unwatch = context.AfterFunc(ctx, c.callers.gone)
		}
	}
	return context.WithValue(ctx, callKey{}, one), true
}

// Rules says which domains have rules.
type Rules interface{ HasDomain(domain string) bool }

// Admit reports whether the node has time for an accepted call, once its domain and the number of its checks are known. The context is
// that of Accept or Began.
func (c *Control) Admit(ctx context.Context, rules Rules, domain string, checks int) bool {
	if checks > 1 {
		c.further.Add(int64(checks - 1))
	}
	return !c.dividing.Load() || c.admit(ctx, rules, domain, checks)
}

func (c *Control) admit(ctx context.Context, rules Rules, domain string, checks int) bool {
	account, work := c.accounts.of(domain, rules.HasDomain(domain)), perCall+checks-1
	one, _ := ctx.Value(callKey{}).(*call)
	switch {
	case one == nil: // it came while the node was in time
		one = &call{draw: c.draw()}
		c.accounts.count(account, 1, work)
	case one.account == newConns || one.account == account:
		c.accounts.count(one.account, 0, checks-1)
	default:
		c.accounts.count(one.account, -1, -perCall)
		c.accounts.count(account, 1, work)
	}
	one.conn.remember(account)
	if one.account == newConns {
		account = newConns
	}
	if !c.accounts.accepts(account, one.draw) {
		c.turnAway(one, checks)
		return false
	}
	one.account, one.work = account, work
	if one.waits != nil && work >= 2*perCall {
		c.callers.grow(one.waits, work/perCall)
	}
	return true
}

// TurnAway refuses an admitted call of so many checks, because other nodes have no time for it. It counts as refused by this node: its work was not done.
// The context is that of Accept or Began.
func (c *Control) TurnAway(ctx context.Context, checks int) {
	one, _ := ctx.Value(callKey{}).(*call)
	if one == nil { // it came while the node was in time
		one = new(call)
	}
	c.turnAway(one, checks)
}

// turnAway takes back that a call was accepted.
func (c *Control) turnAway(one *call, checks int) {
	c.accepted.Add(-1)
	c.further.Add(int64(1 - checks))
	c.turnedAway.Add(int64(perCall + checks - 1))
	c.refused.Inc()
	one.work = 0
}

// Ended is called with the context of Accept or Began when the call was answered. It need not be called for a call whose context ends
// before that, because its caller has gone.
func (c *Control) Ended(ctx context.Context) {
	dividing := c.dividing.Load()
	if !dividing && c.callers.begun.Load() == 0 {
		return
	}
	one, _ := ctx.Value(callKey{}).(*call)
	if one != nil && one.waits != nil && one.unwatch() {
		c.callers.end(one.waits)
	}
	switch {
	case !dividing:
	case one == nil:
		c.accounts.answered.Add(perCall)
	default:
		c.accounts.answered.Add(int64(one.work))
	}
}

// Busy reports whether the node refuses calls, or has done so in the last second, or is about to: it reads late at
// this moment, and enough waits.
func (c *Control) Busy() bool {
	now := int64(time.Since(c.started))
	due := c.due.Load()
	return now < c.busy.Load() || due > 0 && now-due > int64(c.target) && c.accepted.Load()+c.further.Load()/perCall > minWaiting && c.many()
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
	calls := counts{accepted: c.accepted.Swap(0), atOnce: c.callers.atOnce()}
	calls.work = float64(calls.accepted) + float64(c.further.Swap(0))/perCall
	calls.refused = float64(c.turnedAway.Swap(0)) / perCall
	if c.dividing.Load() {
		calls.refused += c.accounts.observe(now.Sub(s.last))
	}
	s.observe(due, now, calls)
	late := now.Sub(due)
	c.lateness.Store(int64(late))
	switch {
	case s.accepted() < 1:
		c.busy.Store(int64(now.Add(memory).Sub(c.started)))
	case late > c.target && calls.work > minWaiting && c.many():
		c.busy.Store(max(c.busy.Load(), int64(now.Add(interval).Sub(c.started))))
	}
	c.divide(s)
	c.callers.watch(s.late())
	c.due.Store(0)
}

// divide has the calls accepted that there is time for. While the node is in time it counts nothing by domain.
func (c *Control) divide(s *share) {
	on, accepted := s.late() || s.accepted() < 1, 1.0
	if on != c.dividing.Load() {
		c.accounts.reset()
		c.dividing.Store(on)
	}
	if on {
		accepted = c.accounts.divide(s.accepted(), s.draining)
	}
	c.share.Store(uint64(accepted * acceptAll))
}
