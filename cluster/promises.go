package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// A peer may remember a denial and answer by itself, because until its RetryAt nothing
// but a reset, a refund or a give-back can change it. Those wait until nobody remembers
// one any more, and only then are they counted: so there is no instant at which the
// owner would let something through that a peer still denies (ADR 10).

// Times and bounds of promises.
const (
	maxPromise   = 20 * time.Millisecond // the most that a denial is remembered
	freeingGrace = 50 * time.Millisecond // for whoever waits to come back; until then nothing new is promised
	promiseSlots = 4 << 10
	openedSlots  = 1 << 10 // that partitions share; one of a few waits for nothing, as with promises
	maxPutOff    = 1 << 10 // give-backs that wait; more do not
	driftShift   = 10      // a peer's clock may run slower by a 1<<driftShift-th
)

// Promises is what this node has promised its peers about the counters that it owns. Its
// router and its server share one.
type Promises struct {
	remember, lend bool // what is promised at all
	started        time.Time
	slots          [promiseSlots]promise
	partitions     atomic.Uint32             // how many there are; 0 until one was opened
	opened         [openedSlots]atomic.Int64 // until when peers may remember what another node has promised
	putOff         atomic.Int64              // give-backs that wait
	durable        *durable                  // what standbys have yet to acknowledge; nil without Custody
}

// promise is about all counters of one slot; times are since started. Who frees and who
// promises do not lock each other out: each first says what it does, and then looks at
// what the other has said, so that one of them sees the other.
type promise struct {
	told       atomic.Int64  // until when somebody remembers a denial
	waited     atomic.Int64  // until when nothing is promised, because somebody waits for told
	begun, end atomic.Uint32 // how often somebody has begun and ended to free something
}

// NewPromises returns the promises of one node, which has made none. It says whether
// peers may remember denials, and whether peers and clients are lent tokens.
func NewPromises(remember, lend bool) *Promises {
	return &Promises{remember: remember, lend: lend, started: time.Now()}
}

// Opened says that this node is about to decide in one of so many partitions. Who did so
// before may have promised until now that denials stay; so nothing is freed in it until
// that is over.
func (p *Promises) Opened(partition, partitions uint32) {
	p.partitions.Store(partitions)
	raise(&p.opened[partition%openedSlots], p.now()+int64(maxPromise))
}

// inherited returns until when peers may remember a denial that another node has promised
// about k's counter.
func (p *Promises) inherited(k ring.Key) int64 {
	n := p.partitions.Load()
	if n == 0 {
		return 0
	}
	return p.opened[k.Partition(n)%openedSlots].Load()
}

func (p *Promises) slot(k ring.Key) *promise { return &p.slots[k.Hi%promiseSlots] }

func (p *Promises) now() int64 { return int64(time.Since(p.started)) }

// quiet returns a ticket for promise, false if something is just being freed.
func (p *Promises) quiet(k ring.Key) (ticket uint32, quiet bool) {
	s := p.slot(k)
	ended := s.end.Load() // first: what begins later has not ended yet
	ticket = s.begun.Load()
	return ticket, ended == ticket
}

// promise reports whether the denial of t, decided after quiet has given the ticket, may
// be remembered for as long as remembered says, and sees to it.
func (p *Promises) promise(t *shard.Take, ticket uint32) bool {
	if !p.remember || t.Decision.Allowed || t.Cost != 1 || t.Decision.RetryAt == algorithms.Never {
		return false
	}
	s := p.slot(t.Key)
	now := p.now()
	undisturbed := func() bool { return s.begun.Load() == ticket && s.waited.Load() <= now }
	if !undisturbed() { // or else those who wait would wait for ever
		return false
	}
	raise(&s.told, now+int64(maxPromise))
	return undisturbed()
}

// remembered is how long after its question was sent a promised denial may be
// remembered.
func remembered(d *algorithms.Decision) int64 {
	most := min(d.RetryAt-d.At, int64(maxPromise))
	return most - most>>driftShift
}

// begin begins to free something of the takes' counters, if nobody remembers a denial of
// one. It then returns 0, and end must follow. Else it returns how long that will be.
func (p *Promises) begin(takes []shard.Take) (wait time.Duration) {
	now := p.now()
	for i := range takes {
		s := p.slot(takes[i].Key)
		s.begun.Add(1)
		wait = max(wait, time.Duration(max(s.told.Load(), p.inherited(takes[i].Key))-now))
	}
	if wait > 0 {
		for i := range takes {
			raise(&p.slot(takes[i].Key).waited, now+int64(wait+freeingGrace))
		}
		p.end(takes)
	}
	return wait
}

func (p *Promises) end(takes []shard.Take) {
	for i := range takes {
		p.slot(takes[i].Key).end.Add(1)
	}
}

// raise makes v at least to.
func raise(v *atomic.Int64, to int64) {
	for {
		if old := v.Load(); old >= to || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// frees reports whether g may leave more room in a counter than there was.
func frees(g *shard.Group) bool {
	if g.Reset {
		return true
	}
	for i := range g.Takes {
		if g.Takes[i].Cost < 0 {
			return !g.Peek
		}
	}
	return false
}

// decide lets local decide. What frees something that must not be freed yet stays
// Unanswered and Waits; the result is how long to wait before all of that is asked again. What its standby
// must have first is Held.
func (p *Promises) decide(local Local, groups []shard.Group) (wait time.Duration) {
	done, strict := 0, false
	for i := range groups {
		g := &groups[i]
		if isStrict(g) {
			strict = true
			g.Lend = 0 // or the borrower would let through what the standby does not have
		}
		if !p.lend {
			g.Lend = 0
		}
		if g.Held == 0 && !frees(g) {
			continue
		}
		local.Decide(groups[done:i])
		done = i + 1
		if g.Held > 0 {
			strict = true
			continue
		}
		if w := p.begin(g.Takes); w > 0 {
			wait, g.Waits = max(wait, w), true
			continue
		}
		local.Decide(groups[i:done])
		p.end(g.Takes)
	}
	if done < len(groups) {
		local.Decide(groups[done:])
	}
	if strict {
		p.durable.hold(groups)
	}
	return wait
}

// giveBack lets local give takes back as soon as it may, and does not wait.
func (p *Promises) giveBack(local Local, takes []shard.Take) {
	wait := p.begin(takes)
	switch {
	case wait == 0:
		local.Return(takes)
		p.end(takes)
	case p.putOff.Add(1) > maxPutOff:
		p.putOff.Add(-1)
		local.Return(takes)
	default:
		takes = slices.Clone(takes)
		time.AfterFunc(wait, func() {
			p.putOff.Add(-1)
			p.giveBack(local, takes)
		})
	}
}
