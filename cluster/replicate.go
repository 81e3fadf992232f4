package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/shard"
)

// replicate keeps the copies on another member current, of the partitions for which that is the standby:
// it sends what has changed, at fixed times, or at once where a counter has granted much.
// It also hands back what this node has granted in that member's place.
func (k *Ownership) replicate(ctx context.Context, c *otherMember) {
	rest := time.NewTimer(urgentEvery)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.due:
			k.returnGrants(ctx, c)
			if !k.replicateOnce(ctx, c) {
				continue // an idle node is not woken once more for the rest
			}
		case <-c.hurry:
			k.replicateOnce(ctx, c)
		}
		rest.Reset(urgentEvery)
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
	}
}

// remind has all that has changed replicated. It is called every replicateEvery, when the node is awake
// anyway: a timer for each member would wake an idle one once more.
func (k *Ownership) remind() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.peers {
		select {
		case c.due <- struct{}{}:
		default:
		}
	}
}

// urgent has a partition replicated at once. Checks call it, so it takes no lock.
func (k *Ownership) urgent(p uint32) {
	c := k.standbys[p].Load()
	if c == nil {
		return
	}
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// feedMessage is one message to a standby, while it is put together.
type feedMessage struct {
	items   []*peerv1.Replica
	records []byte
	rounds  []round  // that are over with it
	last    []uint32 // partitions whose tenure is gone, of which the standby has all with it
}

// noteLast records that the standby has all of f with this message, if that are its last changes.
func (m *feedMessage) noteLast(f feed) {
	if f.last {
		m.last = append(m.last, f.partition)
	}
}

// replicateOnce reports whether there was something to send.
func (k *Ownership) replicateOnce(ctx context.Context, c *otherMember) (sent bool) {
	select {
	case c.feeding <- struct{}{}:
		defer func() { <-c.feeding }()
	case <-ctx.Done():
		return false
	}
	var m feedMessage
	for _, f := range k.feeds(c) {
		r := round{f.partition, k.DenialLeases.strictAcks.begin(f.partition)}
		for more := true; more; {
			if more = k.addChanges(&m, c, f, r); len(m.records) >= messageBytes-recordBytes {
				sent = true
				k.sendReplicas(ctx, c, &m)
			}
		}
	}
	sent = sent || len(m.items) > 0
	if len(m.items) == 0 {
		k.haveParted(m.last, nil)
	}
	k.sendReplicas(ctx, c, &m)
	return sent
}

// Flush ceases to admit, for good, and sends the standbys all that they have not been sent yet: so they
// miss nothing when this node ends without having handed over what it holds. What it has after that is a
// copy, and none to decide from: the standbys go on, each as soon as it has all.
func (k *Ownership) Flush(ctx context.Context) {
	k.mu.Lock()
	peers := slices.Collect(maps.Values(k.peers))
	k.mu.Unlock()
	var flushed sync.WaitGroup
	for _, c := range peers {
		flushed.Go(func() { k.flushTo(ctx, c) })
	}
	flushed.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = true
	for p := range k.parts {
		k.cease(uint32(p))
	}
}

// flushTo is Flush for what c stands by for. One that is not reached is not waited for.
func (k *Ownership) flushTo(ctx context.Context, c *otherMember) {
	reached := k.Router.Reaches(c.member.ID)
	if reached {
		k.replicateOnce(ctx, c) // most of it, while this node still admits
	}
	partitions := k.standbyFor(c)
	for _, p := range partitions {
		k.Shard.Seal(p)
	}
	if reached {
		k.replicateOnce(ctx, c)
		k.returnGrants(ctx, c)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range partitions {
		k.cease(p)
	}
}

// cease leaves p to others, for good.
func (k *Ownership) cease(p uint32) {
	pt := &k.parts[p]
	if pt.over {
		return
	}
	pt.over = true
	k.Shard.Seal(p)
	k.Shard.Withhold(p, true)
	if pt.tenure.state == active {
		pt.copy, pt.fresh, pt.ended = copyVersion{term: pt.tenure.term, seq: pt.sequence, whole: true}, true, true
		pt.tenure.lapse()
		k.follow(p)
	}
}

// feed is a partition that this node holds, as it was fed to a standby so far.
type feed struct {
	partition uint32
	followed  uint64 // since when it is, see replica
	whole     bool   // whether the standby has been sent all of it
	last      bool   // whether the tenure is gone, and these are its last changes
	added     delivery
}

// standbyFor returns the partitions that this node holds and of which c is the standby.
func (k *Ownership) standbyFor(c *otherMember) (partitions []uint32) {
	for p := range k.standbys {
		if k.standbys[p].Load() == c {
			partitions = append(partitions, uint32(p))
		}
	}
	return partitions
}

// feeds returns what c stands by for, of what this node holds.
func (k *Ownership) feeds(c *otherMember) (feeds []feed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.standbys {
		if k.standbys[p].Load() == c && (k.parts[p].tenure.state == active || k.isParting(uint32(p))) {
			feeds = append(feeds, feed{
				partition: uint32(p), followed: k.parts[p].followed, whole: k.parts[p].whole, last: k.parts[p].tenure.state != active,
				added: k.added[grantor{c.member.ID, uint32(p)}],
			})
		}
	}
	return feeds
}

// addChanges adds what has changed in a partition. It reports whether there is more.
func (k *Ownership) addChanges(m *feedMessage, c *otherMember, f feed, r round) (more bool) {
	p, from := r.partition, len(m.records)
	if k.standbys[p].Load() != c { // not any more
		return false
	}
	m.records, more = k.Shard.Changes(p, shard.ToStandby, m.records, recordBytes)
	if len(m.records) == from && !more && f.whole && r.number == 0 { // of an idle node, most
		m.noteLast(f)
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	added := k.added[grantor{c.member.ID, p}] != f.added // of which some of this may lack what was granted
	last := pt.tenure.state != active
	if added || last != f.last || pt.followed != f.followed { // some of this may have been for another standby
		m.records = m.records[:from]
		k.followFromStart(p)
		return false
	}
	if !more && r.number > 0 {
		m.rounds = append(m.rounds, r)
	}
	if !more {
		m.noteLast(f)
	}
	whole := !more && !pt.whole
	if len(m.records) == from && !whole {
		return more
	}
	pt.sequence++
	m.items = append(m.items, &peerv1.Replica{
		Partition: p, Term: uint64(pt.tenure.term), Sequence: pt.sequence,
		Records: m.records[from:len(m.records):len(m.records)], Begin: !pt.begun, Whole: pt.whole || whole, Added: f.added.message(c.member.ID),
	})
	pt.begun, pt.whole = true, pt.whole || whole
	return more
}

// sendReplicas sends what was put together. What does not arrive, or does not fit, is sent again
// from the beginning.
func (k *Ownership) sendReplicas(ctx context.Context, c *otherMember, m *feedMessage) {
	if len(m.items)+len(m.rounds) == 0 {
		return
	}
	caller, sent := k.caller(c), time.Now()
	caller.To = 0 // a member that was restarted may have copies before a view knows it
	call, cancel := context.WithTimeout(ctx, callTimeout)
	resp, err := c.client.Replicate(call, &peerv1.ReplicateRequest{Caller: caller, Replicas: m.items})
	cancel()
	again := resp.GetAgain()
	if resp.GetView() > caller.GetView() {
		k.catchUp(ctx, c.client, caller) // another node may own by now what this node sends
	}
	if err != nil {
		for _, r := range m.items {
			again = append(again, r.GetPartition())
		}
	} else {
		k.DenialLeases.strictAcks.acknowledged(c, sent, m.rounds, again)
		k.haveParted(m.last, again)
	}
	if len(again) > 0 {
		k.restart(c, again)
	}
	clear(m.items)
	m.items, m.records, m.rounds, m.last = m.items[:0], m.records[:0], m.rounds[:0], m.last[:0]
}

// haveParted records the partitions whose tenure is gone, and whose standby has all of them, except those that it wants again.
func (k *Ownership) haveParted(partitions, again []uint32) {
	if len(partitions) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range partitions {
		pt := &k.parts[p]
		if pt.tenure.state == active || slices.Contains(again, p) {
			continue
		}
		if pt.copy.term == pt.tenure.term { // else another one has taken its place
			pt.copy.seq = pt.sequence
		}
		k.parted(p)
	}
}

// restart has partitions sent to their standby from the beginning.
func (k *Ownership) restart(c *otherMember, partitions []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range partitions {
		if int(p) >= len(k.parts) {
			continue
		}
		if k.parts[p].standby == c.member.ID {
			k.followFromStart(p)
		}
	}
}

// grantor is a node that has granted something in place of a partition's owner.
type grantor struct {
	id        string
	partition uint32
}

// delivery is the last batch of a grantor's grants that was added, and which life of it has
// numbered that.
type delivery struct{ incarnation, batch uint64 }

// message returns d as it is told of the member of that id, nil if nothing of it was added.
func (d delivery) message(id string) *peerv1.Delivery {
	if d.batch == 0 {
		return nil
	}
	return &peerv1.Delivery{Id: id, Incarnation: d.incarnation, Batch: d.batch}
}

// deliveries says which grants of members were added in p.
func (k *Ownership) deliveries(p uint32) (all []*peerv1.Delivery) {
	for _, m := range k.view.Present() {
		if d := k.added[grantor{m.ID, p}].message(m.ID); d != nil {
			all = append(all, d)
		}
	}
	return all
}

// outgoing is a batch of grants that is on its way.
type outgoing struct {
	batch   uint64
	grants  []shard.Grant
	returns []shard.Take // given back meanwhile: the owner is to undo them once it has all grants; <= maxGrantReturns
}

// maxGrantReturns is how many takes that were granted in a partition are given back to its owner after its grants. More
// stay counted.
const maxGrantReturns = 1 << 10

// returnGrants tells another member what this node has granted in its place, once it is there again.
func (k *Ownership) returnGrants(ctx context.Context, c *otherMember) {
	if !k.Router.Reaches(c.member.ID) {
		return
	}
	for p, o := range k.outgoing(c.member.ID) {
		if !k.post(p, o.batch) {
			continue
		}
		caller := k.caller(c)
		caller.Incarnation = k.origin
		call, cancel := context.WithTimeout(ctx, callTimeout)
		encoded, n := packGrants(o.grants)
		resp, err := c.client.AddGrants(call, &peerv1.AddGrantsRequest{Caller: caller, Partition: p, Batch: o.batch, Grants: encoded})
		cancel()
		if err == nil && resp.GetAdded() {
			k.delivered(p, o.batch, n)
		}
		k.posted(p)
	}
}

// post reports whether the batch of grants in p is still this node's to tell. Until posted they go with no copy, and
// others come with none: either would be told under another number, and be counted twice.
func (k *Ownership) post(p uint32, batch uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.outbox[p].batch != batch || k.parts[p].pulling {
		return false
	}
	k.parts[p].posting = true
	return true
}

func (k *Ownership) posted(p uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parts[p].posting = false
}

// enclose adds grants to what is on its way to p's owner, under a new number.
func (k *Ownership) enclose(p uint32, grants []shard.Grant) {
	if len(grants) > 0 {
		o := k.outbox[p]
		k.setOutgoing(p, append(o.grants, grants...), o.returns)
	}
}

// setOutgoing has just these grants be on their way to p's owner, under a new number. Until that has said that it has them, what it
// sends does not take their place.
func (k *Ownership) setOutgoing(p uint32, grants []shard.Grant, returns []shard.Take) {
	delete(k.outbox, p)
	if len(grants) > 0 {
		k.batch++
		k.outbox[p] = outgoing{k.batch, grants, returns}
	}
	k.Shard.Underway(p, grants)
}

// delivered takes the first grants of a batch off those that are on their way. When the owner has all of them it is to
// undo what was given back meanwhile.
func (k *Ownership) delivered(p uint32, batch uint64, n int) {
	owner, returns := k.acknowledge(p, batch, n)
	for i := range returns {
		k.Router.passTo(owner, returns[i])
	}
}

// acknowledge is delivered for the grants. It returns what the owner is to undo.
func (k *Ownership) acknowledge(p uint32, batch uint64, n int) (owner string, returns []shard.Take) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Logger.Debug("grants delivered", "partition", p, "batch", batch, "counters", n)
	o := k.outbox[p]
	if o.batch != batch || n <= 0 || n > len(o.grants) || k.view == nil {
		return "", nil
	}
	k.setOutgoing(p, o.grants[n:], o.returns)
	if n < len(o.grants) {
		return "", nil
	}
	return k.claim(p).owner.id, o.returns
}

// dropAdded takes the grants off those that are on their way of which p's owner says that it has added them.
func (k *Ownership) dropAdded(p uint32, d *peerv1.Delivery) {
	o, under := k.outbox[p]
	if !under || d.GetId() != k.Self.ID || d.GetIncarnation() != k.origin || d.GetBatch() < o.batch {
		return
	}
	_, n := packGrants(o.grants) // the part of them that had the number
	k.setOutgoing(p, o.grants[n:], nil)
}

// prepare makes batches of what was granted in the place of the member of that id, which is there: until then they are kept
// apart, or else what its owner sends would take their place. Where a batch is on its way already, that goes first.
func (k *Ownership) prepare(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := uint32(0); k.view != nil && int(p) < len(k.parts) && k.Shard.HasAnyGrants(); p++ {
		if _, under := k.outbox[p]; under || k.parts[p].pulling {
			continue
		}
		if k.claim(p).owner.id == id {
			k.enclose(p, k.Shard.TakeGrants(p, maxGrantBatch))
		}
	}
}

// outgoing returns the batches that are for the member of that id.
func (k *Ownership) outgoing(id string) map[uint32]outgoing {
	k.prepare(id)
	k.mu.Lock()
	defer k.mu.Unlock()
	batches := make(map[uint32]outgoing)
	for p, o := range k.outbox {
		if k.claim(p).owner.id == id {
			batches[p] = o
		}
	}
	return batches
}
