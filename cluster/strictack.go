package cluster

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Of a strict counter at most a tenth of the limit is told to callers before the standby has it.
// What goes beyond is counted at once, but its answer is deferred: the caller's node asks again
// for it until the standby has acknowledged, and if the owner does not live to see that, asks
// the standby, as if nothing had been decided (ADR 21).

// Times and bounds of strict counters.
const (
	unackedShare   = 10                    // a unackedShare-th of a limit, but a token at least, is told without an acknowledgement
	strictPatience = 10 * time.Millisecond // the most that an answer is deferred, and a standby waited for before it counts as missing
	maxOwed        = 64 << 10              // counters of which something is unacknowledged, about; of others every answer is deferred
)

// strictAcks is what the standbys of this node's partitions have yet to acknowledge of strict
// counters.
type strictAcks struct {
	standbys       []atomic.Pointer[otherMember] // by partition
	urgent         func(p uint32)
	started        time.Time
	log            *slog.Logger
	deferred       prometheus.Counter
	unacknowledged prometheus.Counter

	parts    []owed        // by partition
	counters atomic.Int64  // in all of them; <= maxOwed, except for takes that are counted at the same time
	rounds   atomic.Uint64 // of replication, all partitions' and standbys'
}

// owed is what one partition's standby has yet to acknowledge.
type owed struct {
	mu      sync.Mutex
	fresh   map[ring.Key]int64 // tokens that were granted since the last round began; guarded by mu
	sent    map[ring.Key]int64 // those that were granted before; guarded by mu
	acked   uint64             // the last round that was acknowledged; guarded by mu
	waiting bool               // whether an answer waits for a round that has not begun; guarded by mu
}

// owes reports whether the standby is to know of t before more than the share is told.
func owes(t *shard.Take) bool {
	return t.Strict && !t.Shadow && t.Cost > 0 && t.Decision.Allowed && !t.Brief()
}

// deferAnswers counts what the groups, which are decided, have taken of strict counters, and defers their answers
// where too much of that is unacknowledged. It releases the answers that are deferred already, if they need not be any more.
func (d *strictAcks) deferAnswers(groups []shard.Group) {
	for i := range groups {
		switch g := &groups[i]; {
		case g.Deferred > 0:
			if d.mustWait(g) {
				setSource(g, shard.Deferred)
			} else {
				release(g)
			}
		case d == nil, g.Peek, g.Reset, g.LentAt > 0, !g.Allowed, g.Takes[0].Source != shard.Owner:
		default:
			d.grant(g)
		}
	}
}

// grant is deferAnswers for one group that was just decided.
func (d *strictAcks) grant(g *shard.Group) {
	deferred := uint64(0)
	for i := range g.Takes {
		if t := &g.Takes[i]; owes(t) {
			deferred = max(deferred, d.grantOne(t))
		}
	}
	if deferred > 0 {
		d.deferred.Inc()
		g.Deferred = deferred
		setSource(g, shard.Deferred)
	}
}

// grantOne returns the number of the round after which one must be acknowledged before t is told;
// 0 if none must.
func (d *strictAcks) grantOne(t *shard.Take) (after uint64) {
	p := t.Key.Partition(uint32(len(d.parts)))
	c := d.standbys[p].Load()
	if c == nil {
		return 0
	}
	if after = d.parts[p].add(d, t); after == 0 {
		return 0
	}
	return d.wait(c, p, after)
}

// wait has p replicated at once for an answer that waits. It returns after, or 0 if the standby is
// missing, so that nothing waits for it.
func (d *strictAcks) wait(c *otherMember, p uint32, after uint64) uint64 {
	if d.isMissing(c) {
		d.unacknowledged.Inc()
		return 0
	}
	d.urgent(p)
	return after
}

// add counts t, and returns the number of the last round that has begun if t must not be told
// before a later one.
func (o *owed) add(d *strictAcks, t *shard.Take) (after uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, known := o.fresh[t.Key]
	if !known {
		if d.counters.Load() >= maxOwed {
			o.waiting = true
			return d.lastRound()
		}
		d.counters.Add(1)
		if o.fresh == nil {
			o.fresh = make(map[ring.Key]int64)
		}
	}
	o.fresh[t.Key] = before + t.Cost
	if before+t.Cost+o.sent[t.Key] <= max(1, t.Limit.Capacity()/unackedShare) {
		return 0
	}
	o.waiting = true
	return d.lastRound()
}

// lastRound returns the number of the last round that has begun, which is never 0.
func (d *strictAcks) lastRound() uint64 { return d.rounds.Load() + 1 }

// mustWait reports whether the answer to g, which is deferred, is to wait on.
func (d *strictAcks) mustWait(g *shard.Group) (waits bool) {
	for i := range g.Takes {
		t := &g.Takes[i]
		if d == nil || !t.Strict || t.Shadow || t.Cost <= 0 {
			continue
		}
		p := t.Key.Partition(uint32(len(d.parts)))
		c := d.standbys[p].Load()
		if c == nil || d.parts[p].has(g.Deferred) {
			continue
		}
		waits = d.wait(c, p, g.Deferred) > 0 || waits
	}
	return waits
}

// has reports whether a round after that one was acknowledged. If not, there will be one.
func (o *owed) has(after uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.acked > after {
		return true
	}
	o.waiting = true
	return false
}

// tell releases g although its standby has not acknowledged it.
func (d *strictAcks) tell(g *shard.Group) {
	if d != nil {
		d.unacknowledged.Inc()
	}
	release(g)
}

// isMissing reports whether c, for which an answer waits, has not acknowledged anything for
// too long.
func (d *strictAcks) isMissing(c *otherMember) bool {
	now := max(1, int64(time.Since(d.started)))
	since := c.awaited.Load()
	switch {
	case c.missing.Load():
		return true
	case since == 0:
		c.awaited.CompareAndSwap(0, now)
		return false
	case now-since < int64(strictPatience):
		return false
	}
	if c.missing.CompareAndSwap(false, true) {
		d.log.Warn("strict limits do not wait for a standby any more, which does not acknowledge", "standby", c.member.ID)
	}
	return true
}

// begin begins a round for p and returns its number, 0 if nothing is owed: all that was granted
// before is among the Changes that are asked for after it.
func (d *strictAcks) begin(p uint32) uint64 {
	o := &d.parts[p]
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.fresh)+len(o.sent) == 0 && !o.waiting {
		return 0
	}
	o.waiting = false
	before := len(o.fresh) + len(o.sent)
	if len(o.sent) == 0 {
		o.sent = o.fresh
	} else { // the last round was not acknowledged
		for k, tokens := range o.fresh {
			o.sent[k] += tokens
		}
	}
	o.fresh = nil
	d.counters.Add(int64(len(o.sent) - before))
	return d.rounds.Add(1) + 1
}

// acknowledged says that c has all of p that was sent to it in a round, unless it does not stand by for p any more.
func (d *strictAcks) acknowledged(c *otherMember, sent time.Time, p uint32, number uint64) {
	c.awaited.Store(0)
	if time.Since(sent) < strictPatience && c.missing.CompareAndSwap(true, false) {
		d.log.Info("strict limits wait for a standby again", "standby", c.member.ID)
	}
	if d.standbys[p].Load() != c {
		return
	}
	o := &d.parts[p]
	o.mu.Lock()
	defer o.mu.Unlock()
	d.counters.Add(-int64(len(o.sent)))
	o.sent, o.acked = nil, number
}

// drop forgets what p owes: it has no standby any more.
func (d *strictAcks) drop(p uint32) {
	o := &d.parts[p]
	o.mu.Lock()
	defer o.mu.Unlock()
	d.counters.Add(-int64(len(o.fresh) + len(o.sent)))
	o.fresh, o.sent, o.waiting = nil, nil, false
}
