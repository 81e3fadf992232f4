package cluster

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// A peer may remember a denial and answer by itself, because until its RetryAt nothing but a reset, a
// refund or a give-back can change it. Those wait until no peer remembers one any more, and only then are
// they counted: so there is no instant at which the owner would allow a take that a peer still denies (ADR
// 10).

// Times and bounds of denial leases.
const (
	maxDenialLease   = 20 * time.Millisecond // the most that a denial is remembered
	freeingGrace     = 50 * time.Millisecond // for a waiting caller to come back; until then no denial lease is given
	denialLeaseSlots = 4 << 10
	openedSlots      = 1 << 10               // that partitions share, so a partition may wait without need, as keys with a shared denialLease do
	maxPutOff        = 1 << 10               // give-backs that wait; more do not
	driftShift       = 10                    // a peer's clock may run slower by a 1<<driftShift-th
	passOnAfter      = 20 * time.Millisecond // before a give-back goes to where its counter is: that may be on its way there
)

// GivenDenialLeases are the denial leases that this node has given to its peers, about the counters that it owns. Its
// router and its server share one.
type GivenDenialLeases struct {
	remember, lend bool // whether denial leases and token leases are given at all
	started        time.Time
	slots          [denialLeaseSlots]denialLease
	partitions     atomic.Uint32             // how many there are; 0 until one was opened
	opened         [openedSlots]atomic.Int64 // until when denial leases of the owner before may last
	putOff         atomic.Int64              // give-backs that wait
	own            *ownReplicas              // has other nodes give back what this one does not have; set by NewRouter, nil without one
	strictAcks     *strictAcks               // what standbys have yet to acknowledge; nil without Owners
}

// denialLease is that of all counters of one slot; times are since started. lease and begin do not lock each other
// out. Each first stores what it does, and then reads what the other has stored, so one of them sees the other.
type denialLease struct {
	told       atomic.Int64  // until when a node remembers a denial
	waited     atomic.Int64  // until when no denial lease is given, because a caller waits for told
	begun, end atomic.Uint32 // how often a take has begun and ended to free something
}

// NewGivenDenialLeases returns the denial leases of one node, which has given none. If remember is false, it never gives one.
// If lend is false, peers and clients are lent no tokens.
func NewGivenDenialLeases(remember, lend bool) *GivenDenialLeases {
	return &GivenDenialLeases{remember: remember, lend: lend, started: time.Now()}
}

// Opened says that this node is about to decide in a partition, of as many as partitions says. The node that decided there
// before may have leased denials until now. So nothing is freed in the partition until these leases have ended.
func (p *GivenDenialLeases) Opened(partition, partitions uint32) {
	p.partitions.Store(partitions)
	raise(&p.opened[partition%openedSlots], p.now()+int64(maxDenialLease))
}

// inherited returns until when a denial lease of k's counter may last that another node has given.
func (p *GivenDenialLeases) inherited(k ring.Key) int64 {
	n := p.partitions.Load()
	if n == 0 {
		return 0
	}
	return p.opened[k.Partition(n)%openedSlots].Load()
}

func (p *GivenDenialLeases) slot(k ring.Key) *denialLease { return &p.slots[k.Hi%denialLeaseSlots] }

func (p *GivenDenialLeases) now() int64 { return int64(time.Since(p.started)) }

// quiet returns a ticket for lease, false if something is just being freed.
func (p *GivenDenialLeases) quiet(k ring.Key) (ticket uint32, quiet bool) {
	s := p.slot(k)
	ended := s.end.Load() // first: what begins later has not ended yet
	ticket = s.begun.Load()
	return ticket, ended == ticket
}

// lease gives a denial lease for t, which was decided after quiet has given the ticket. It is false if it does not. The peer
// may remember the denial for as long as remembered says.
func (p *GivenDenialLeases) lease(t *shard.Take, ticket uint32) bool {
	if !p.remember || t.Decision.Allowed || t.Contended || t.Cost != 1 || t.Decision.RetryAt == algorithms.Never {
		return false
	}
	s := p.slot(t.Key)
	now := p.now()
	undisturbed := func() bool { return s.begun.Load() == ticket && s.waited.Load() <= now }
	if !undisturbed() { // or else waiting callers would wait for ever
		return false
	}
	raise(&s.told, now+int64(maxDenialLease))
	return undisturbed()
}

// remembered is how long a denial lease lasts, from when its request was sent.
func remembered(d *algorithms.Decision) int64 {
	most := min(d.RetryAt-d.At, int64(maxDenialLease))
	return most - most>>driftShift
}

// begin begins to free something of the takes' counters, if no node remembers a denial of one. It then
// returns 0, and end must follow. Else it returns how long that will be.
func (p *GivenDenialLeases) begin(takes []shard.Take) (wait time.Duration) {
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

func (p *GivenDenialLeases) end(takes []shard.Take) {
	for i := range takes {
		p.slot(takes[i].Key).end.Add(1)
	}
}

// decide lets local decide. What frees something that must not be freed yet stays
// Undecided and Waits; the result is how long to wait before all of that is asked again. What its standby
// must have first is Deferred.
func (p *GivenDenialLeases) decide(local Local, groups []shard.Group) (wait time.Duration) {
	done, strict := 0, false
	for i := range groups {
		g := &groups[i]
		if isStrict(g) {
			strict = true
			g.Lend = 0 // or the borrower would allow takes that the standby does not have
		}
		if !p.lend {
			g.Lend = 0
		}
		if g.Deferred == 0 && !frees(g) {
			continue
		}
		local.Decide(groups[done:i])
		done = i + 1
		if g.Deferred > 0 {
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
		p.strictAcks.deferAnswers(groups)
	}
	return wait
}

func isRedirected(t shard.Take) bool { return t.Source == shard.Redirected }

// later calls do with a copy of takes after a while. It is false if too much waits already.
func (p *GivenDenialLeases) later(wait time.Duration, takes []shard.Take, do func([]shard.Take)) bool {
	if p.putOff.Add(1) > maxPutOff {
		p.putOff.Add(-1)
		return false
	}
	takes = slices.Clone(takes)
	time.AfterFunc(wait, func() {
		p.putOff.Add(-1)
		do(takes)
	})
	return true
}
