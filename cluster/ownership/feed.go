package ownership

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// Bounds of feeds.
const (
	followers    = 2         // nodes that are fed one partition: the standby, and a learner
	recordBytes  = 32 << 10  // of one message, about
	messageBytes = 128 << 10 // of the messages of one call, about
	copyBytes    = 12 << 10  // of these, of copies that are not complete, for each copyWay that a call takes at least
	feedRest     = 2         // times as long as nodes worked for a call, before the next one of what is more than a call has room for
	copyTurn     = 256       // messages of one copy in a row, at least: others need not wait for one that changes faster than it is sent
	copyRest     = 8         // times as long, before the next one with copies that are not complete
	feedRestMost = 100 * time.Millisecond
	copyRestMost = 10 * time.Millisecond // under full load: a standby must not lack a copy for long
	copyWay      = 500 * time.Microsecond
)

// feed is how far a node is fed. The zero value is that of none. Its place in partition.feeds is its number as a follower of the shard.
type feed struct {
	to view.Life
	progress
	known
	// brief is since when it has been given short-lived counters, the zero time if it is not.
	brief time.Time
	// rests says that there was nothing to send when this node looked last, after it had ceased to decide for good.
	rests bool
	// later is until when nothing is sent: it could not be taken.
	later time.Time
	// base is the version of the copy that the node has already, of which it is sent the changes; or zero.
	base replica.Version
	// finalFor is the term of the owner for which this feed ends with the final state; else 0.
	finalFor uint64
}

// progress is which messages of a feed were made.
type progress struct {
	session uint64
	index   uint64   // of the last message
	unsent  *Changes // that message, until it has arrived; or nil
	round   uint64   // of unsent, as Observer counts
}

// known is what is known of the copy of the node that is fed.
type known struct {
	// version and acknowledged are those of the last message with which it was complete, zero before.
	version      replica.Version
	acknowledged replica.Acknowledged
	told         uint64 // the last view in which the node has reported that it is complete
}

// isCopy reports whether the receiver has no complete copy yet, and no final state is due: then there is no hurry.
func (d *feed) isCopy() bool {
	return d.version == (replica.Version{}) && d.base == (replica.Version{}) && d.finalFor == 0
}

// sending is what a node sends others of one partition.
type sending struct {
	feeds   [followers]feed      // by follower of the shard; of different nodes
	final   Request              // the final state that is due, to the owner of the newest view; Term 0 for none
	standby atomic.Pointer[peer] // whom the owner feeds as standby, nil for none; for those that do not lock
	learner atomic.Pointer[peer] // whom it feeds apart from the standby, likewise
}

// assignFeeds has those fed that are to have copies: the standby and a learner by the owner, or the owner by a predecessor. x.mu is held.
func (x *partition) assignFeeds() {
	var to [followers]view.Life
	switch {
	case x.replica.State == replica.Deciding:
		to[0], to[1] = x.replica.Claim.Standby, x.place.learner
	case x.out.final.Term > 0 && x.out.final.Term == x.replica.Claim.Term:
		to[0] = x.replica.Claim.Owner
	}
	for f := range x.out.feeds {
		if d := &x.out.feeds[f]; d.to != (view.Life{}) && (!slices.Contains(to[:], d.to) || x.node.peer(d.to) == nil) {
			x.endFeed(shard.Follower(f))
		}
	}
	for _, l := range to {
		if c := x.node.peer(l); c != nil && !slices.ContainsFunc(x.out.feeds[:], func(d feed) bool { return d.to == l }) {
			f := slices.IndexFunc(x.out.feeds[:], func(d feed) bool { return d.to == view.Life{} })
			x.beginFeed(shard.Follower(f), l)
			c.setFed(x.p, true)
		}
	}
	for f := range x.out.feeds {
		x.tuneFeed(shard.Follower(f))
	}
	var standby, learner *peer
	if x.replica.State == replica.Deciding {
		standby, learner = x.node.peer(x.replica.Claim.Standby), x.node.peer(x.place.learner)
	}
	x.out.learner.Store(learner)
	if x.out.standby.Swap(standby) != standby {
		x.node.Observer.Followed(x.p, standby.lifeOr())
	}
}

// tuneFeed has a feed be what its receiver needs it for. x.mu is held.
func (x *partition) tuneFeed(f shard.Follower) {
	d := &x.out.feeds[f]
	if d.to == (view.Life{}) {
		return
	}
	isFinal := x.replica.State != replica.Deciding
	brief := isFinal || d.to == x.place.target && x.place.owner
	if isFinal && d.finalFor != x.out.final.Term {
		if d.brief.IsZero() || time.Since(d.brief) < shard.Brief {
			x.beginFeed(f, d.to) // it lacks counters that are short-lived
			d = &x.out.feeds[f]
		}
		d.finalFor = x.out.final.Term
		if c := x.node.peer(d.to); c != nil {
			c.noteFinal()
			fill(c.soon)
		}
	}
	x.node.Shard.SetWants(x.p, f, shard.Wants{Brief: brief, Urgent: !isFinal})
	switch {
	case !brief:
		d.brief = time.Time{}
	case d.brief.IsZero():
		d.brief = time.Now()
	}
}

// beginFeed begins to feed a node, with everything, unless it has given the final state just now. x.mu is held.
func (x *partition) beginFeed(f shard.Follower, to view.Life) {
	x.out.feeds[f] = feed{to: to, progress: progress{session: x.node.session.Add(1)}}
	if x.in.given.isOf(f, to) {
		x.out.feeds[f].base = x.in.given.version
		x.in.given = given{}
		return
	}
	x.node.Shard.Follow(x.p, f)
}

// endFeed ends what a node is fed. x.mu is held.
func (x *partition) endFeed(f shard.Follower) {
	d := &x.out.feeds[f]
	if c := x.node.peer(d.to); c != nil {
		c.setFed(x.p, false)
	}
	x.node.Shard.Unfollow(x.p, f)
	*d = feed{}
}

// Hurry has the standby of a partition fed at once, and the learner, which is the standby as soon as a view says so. Checks call it,
// so it takes no lock.
func (n *Node) Hurry(p uint32) {
	out := &n.parts[p].out
	if c := out.standby.Load(); c != nil {
		fill(c.soon)
	}
	if c := out.learner.Load(); c != nil {
		fill(c.soon)
	}
}

// feed sends a peer the changes that it is to have, and some of the copies that are not complete yet, and returns how long to rest. It takes its time
// over these copies: checks are decided meanwhile, on as few processors. A peer that cannot take a final state yet is soon sent it again. Copies says
// that it is time for copies, and the first call need carry no more.
func (c *peer) feed(ctx context.Context, copies bool) (rest time.Duration) {
	defer func() {
		if c.retry {
			c.retry = false
			fill(c.soon)
		}
	}()
	for {
		changes, more := c.pack(copies)
		if len(changes) > 0 && (c.way == 0 && !c.send(ctx, nil) || !c.send(ctx, changes)) {
			return feedEvery
		}
		c.copies.rest(min(copyRest*c.worked, copyRestMost))
		if !more {
			return hurryEvery
		}
		copies = false
		c.pause(ctx, min(feedRest*c.worked, feedRestMost))
	}
}

// copyPace is how fast a peer is sent copies that are not complete. Its goroutine owns it.
type copyPace struct {
	due  *time.Timer // fires when more of them may be sent, if there are more
	at   time.Time   // when that is
	room int         // bytes of them that the call being packed still has room for
	some bool        // the call has some
	more bool        // there are more
	of   uint32      // the partition of the last message of such a copy
	row  uint64      // how many of that there were in a row
}

// begin begins a call. Way is the least that one has taken: one piece at a time is under way, so that it is larger where a call takes longer. Hurry says that
// no checks are decided meanwhile.
func (c *copyPace) begin(way time.Duration, hurry bool) {
	c.room, c.some, c.more = min(copyBytes*int(max(1, way/copyWay)), messageBytes), false, false
	switch {
	case hurry:
		c.room = messageBytes
	case time.Now().Before(c.at):
		c.room = 0
	}
}

// add has the call carry a message of such a copy.
func (c *copyPace) add(m *Changes) {
	c.room -= len(m.Records)
	c.some, c.more = true, c.more || !m.Complete
	if m.Partition != c.of {
		c.of, c.row = m.Partition, 0
	}
	c.row++
	if !m.Complete && c.row >= max(copyTurn, m.Index/2) { // longer each time: else a long one would begin again and again, of which much changes meanwhile
		c.row = 0
	}
}

// turn returns the partition with which the next call begins: that of the last message, unless that is complete, or others are to have their turn.
func (c *copyPace) turn() uint32 {
	if c.row == 0 {
		return c.of + 1
	}
	return c.of
}

// rest has the next copies sent so long after a call that has ended just now.
func (c *copyPace) rest(wait time.Duration) {
	if c.some {
		c.at = time.Now().Add(wait)
	}
	if c.more {
		c.due.Reset(max(0, time.Until(c.at)))
	}
}

// pause waits, until ctx ends or the channel is closed, if it is not nil.
func pause(ctx context.Context, wait time.Duration, until <-chan struct{}) {
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-ctx.Done():
	case <-until:
	case <-over.C:
	}
}

// pack returns one message of each partition of which a peer is to have something, as far as they fit into a call, and whether there is more than
// copies that are not complete. Copies has it look no further once the call has no more room for these.
func (c *peer) pack(copies bool) (changes []*Changes, more bool) {
	wasDue := !copies && c.renewFinal()
	c.ends = false
	changes, more, all := c.packMessages(copies)
	if c.ends || wasDue && !all {
		c.noteFinal()
	}
	return changes, more
}

// packMessages does so, and reports whether it has looked at all partitions.
func (c *peer) packMessages(copies bool) (changes []*Changes, more, all bool) {
	partitions, size := c.partitions(), 0
	first, _ := slices.BinarySearch(partitions, c.turn)
	turn := c.turn
	c.copies.begin(c.way, c.node.isOver.Load())
	for i := range partitions {
		if copies && c.copies.room <= 0 {
			c.copies.more = true
			break
		}
		p := partitions[(first+i)%len(partitions)]
		if size >= messageBytes { // it is the first one next time
			c.turn, c.copies.more = p, true
			return changes, true, false
		}
		had := c.copies.room
		m, again := c.node.parts[p].collect(c)
		if m == nil {
			continue
		}
		if had > 0 && c.copies.room <= 0 {
			turn = c.copies.turn()
		}
		changes = append(changes, m)
		size += len(m.Records)
		more = more || again
	}
	c.turn = turn
	return changes, more, true
}

// collect returns the next message about a partition for a peer, nil if there is none, and whether there is more apart from copies that are not
// complete. What has not arrived comes again.
func (x *partition) collect(c *peer) (m *Changes, more bool) {
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
func (x *partition) collectNext(c *peer, f shard.Follower) (more bool) {
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
func (x *partition) addToFinal(c *peer, f shard.Follower) {
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

// include has a message that ends a final state say that the sender's own deltas are in it, up to the last one. A former owner has what it grants as the
// standby in its counters. So the next owner knows of that as soon as it decides, and adds none of it twice.
func (m *Changes) include(sender view.Life, last uint64) {
	if had := m.Acknowledged.Of(sender); m.FinalFor > 0 && m.Complete && last > had {
		m.Acknowledged, m.Version.Sequence = m.Acknowledged.With(sender, last), m.Version.Sequence+last-had
	}
}

// send sends changes, and reports whether they were answered. What a call takes beyond the least that one has taken, nodes have worked for it, or were
// too busy to: so TCP Vegas tells queues from distance (Brakmo and Peterson, 1995: BaseRTT). The first call of a peer has no changes.
func (c *peer) send(ctx context.Context, changes []*Changes) bool {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	receipts, err := c.node.Peers.Feed(call, c.life, changes, c.finalDue())
	if err != nil || len(receipts) != len(changes) {
		return false
	}
	took := time.Since(began)
	if c.way == 0 || took < c.way {
		c.way = took
	}
	c.worked = took - c.way
	for i, m := range changes {
		c.node.parts[m.Partition].sent(c, m, receipts[i], began)
	}
	return true
}

// sent records what a node has answered to a message that was sent then.
func (x *partition) sent(c *peer, m *Changes, receipt Receipt, began time.Time) {
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

// noteCopied tells the replica what copy a node has that is fed. x.mu is held.
func (x *partition) noteCopied(d *feed) {
	if len(d.acknowledged) > 0 { // else there are no deltas to answer for
		x.step(replica.Event{Kind: replica.Copied, From: d.to, Version: d.version, Acknowledged: d.acknowledged}, nil)
	}
}

// restartFeed feeds a node everything again. x.mu is held.
func (x *partition) restartFeed(f shard.Follower) {
	d := x.out.feeds[f]
	x.beginFeed(f, d.to)
	x.out.feeds[f].finalFor, x.out.feeds[f].brief = d.finalFor, d.brief
	x.node.Shard.SetWants(x.p, f, shard.Wants{Brief: !d.brief.IsZero(), Urgent: x.replica.State == replica.Deciding})
}
