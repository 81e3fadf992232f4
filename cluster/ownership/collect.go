package ownership

import (
	"bytes"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/shard"
)

// collect returns the next message about a partition for a peer, nil if there is none, and whether there is more apart from copies that are not
// complete. What has not arrived comes again.
func (x *partition) collect(c *sender) (m *Changes, more bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := slices.IndexFunc(x.out.feeds[:], func(d feed) bool { return d.to == c.life })
	if f < 0 {
		return nil, false
	}
	d := &x.out.feeds[f]
	isCopy := d.isCopy()
	c.ends = c.ends || d.finalFor > 0
	switch {
	case time.Now().Before(d.later):
		return nil, false
	case isCopy && c.copies.room <= 0:
		c.copies.more = true
		return nil, false
	case d.unsent != nil && isCopy:
		c.copies.add(d.unsent)
		return d.unsent, false
	case d.unsent != nil:
		x.addToFinal(c, shard.Follower(f))
		return d.unsent, true
	}
	if more = x.collectNext(c, shard.Follower(f)); d.unsent == nil {
		return nil, false
	}
	if isCopy {
		c.copies.add(d.unsent)
		return d.unsent, false
	}
	return d.unsent, more
}

// collectNext makes the next message of a feed from what has changed since the last one, if anything is to be said. It reports whether there is more. x.mu is held.
func (x *partition) collectNext(c *sender, f shard.Follower) (more bool) {
	d := &x.out.feeds[f]
	granted := x.lastDelta(d)
	over, round := x.node.isOver.Load(), uint64(0)
	if d.to == x.replica.Claim.Standby {
		round = x.node.Observer.Begin(x.p)
	}
	most := recordBytes
	if d.isCopy() {
		most = min(most, c.copies.room)
	}
	c.buf, more = x.node.Shard.Changes(x.p, f, c.buf[:0], most)
	records := bytes.Clone(c.buf)
	number := uint64(0)
	// The next owner would not know what nodes are lent. They are lent nothing more since the feed is given brief counters.
	if d.to == x.place.target && !more && (!x.place.owner || !d.brief.IsZero() && time.Since(d.brief) >= shard.Brief && !x.node.Shard.HasNodeLeases(x.p)) {
		number = x.replica.Claim.Number
	}
	if len(records) == 0 && !more && d.finalFor == 0 && d.index > 0 && (number == 0 || number == d.told) && round == 0 {
		d.rests = over
		return false
	}
	if len(records) > 0 && x.replica.State == replica.Deciding {
		x.replica = x.replica.Granted()
	}
	d.index++
	d.round = max(d.round, round)
	d.unsent = &Changes{
		Partition: x.p, Session: d.session, Index: d.index, Version: x.replica.Version, Acknowledged: x.replica.Acknowledged,
		Records: records, Complete: !more, Number: number, FinalFor: d.finalFor, Base: d.base, ReadsBase: d.finalFor > 0,
	}
	d.unsent.include(x.replica.Grantor, granted)
	return more
}

// lastDelta returns the number of the last own delta, of all that was granted from the copy before, if a final state is due; else 0. x.mu is held.
func (x *partition) lastDelta(d *feed) uint64 {
	if d.finalFor == 0 || !x.node.hasGranted() {
		return 0
	}
	x.takeGrants(maxBatches)
	if n := len(x.deltas.own.batches); n > 0 {
		return x.deltas.own.batches[n-1].Number
	}
	return 0
}

// addToFinal adds what was granted from the copy meanwhile to a final state that has not arrived: maxBatches times at most, as no delta is trimmed before it has.
// x.mu is held.
func (x *partition) addToFinal(c *sender, f shard.Follower) {
	d := &x.out.feeds[f]
	granted := x.lastDelta(d)
	if m := *d.unsent; m.FinalFor > 0 && m.Complete && granted > m.Acknowledged.Of(x.replica.Grantor) {
		var more bool
		c.buf, more = x.node.Shard.Changes(x.p, f, c.buf[:0], recordBytes)
		m.Records, m.Complete = append(bytes.Clone(m.Records), c.buf...), !more
		m.include(x.replica.Grantor, granted)
		d.unsent = &m
	}
}

// sent records what a node has answered to a message that was sent then.
func (x *partition) sent(c *sender, m *Changes, receipt Receipt, began time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := slices.IndexFunc(x.out.feeds[:], func(d feed) bool { return d.unsent == m })
	if f < 0 { // the feed has begun again, or has ended
		return
	}
	d := &x.out.feeds[f]
	switch {
	case receipt == Again:
		x.restartFeed(shard.Follower(f))
		return
	case receipt == Later && d.finalFor > 0:
		d.later = time.Now().Add(hurryEvery)
		c.retry = true
		return
	case receipt == Later, receipt == Useless && m.FinalFor == 0:
		d.later = time.Now().Add(feedEvery)
		return
	}
	d.unsent = nil
	if m.FinalFor > 0 && (m.Complete || receipt == Useless) {
		x.out.final = Request{}
		x.assignFeeds()
		return
	}
	if receipt == Fit {
		d.told = m.Number
	}
	if m.Complete {
		d.version, d.acknowledged = m.Version, m.Acknowledged
		x.noteCopied(d)
		if d.round > 0 && d.to == x.replica.Claim.Standby {
			x.node.Observer.Acknowledged(x.p, d.round, began)
		}
		d.round = 0
	}
}
