package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/shard"
)

// replicate keeps a colleague's copies of the partitions current for which it is the standby:
// it sends what has changed, at fixed times, or at once where a counter has let much through.
// It also hands back what this node has granted in the colleague's place.
func (k *Custody) replicate(ctx context.Context, c *colleague) {
	tick := time.NewTicker(replicateEvery)
	defer tick.Stop()
	rest := time.NewTimer(urgentEvery)
	defer rest.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.returnGrants(ctx, c)
		case <-c.hurry:
		}
		k.replicateOnce(ctx, c)
		rest.Reset(urgentEvery)
		select {
		case <-ctx.Done():
			return
		case <-rest.C:
		}
	}
}

// urgent has a partition replicated at once. Checks call it, so it takes no lock.
func (k *Custody) urgent(p uint32) {
	c := k.standbys[p].Load()
	if c == nil {
		return
	}
	select {
	case c.hurry <- struct{}{}:
	default:
	}
}

// replicas is one message to a standby, while it is put together.
type replicas struct {
	items   []*peerv1.Replica
	records []byte
}

func (k *Custody) replicateOnce(ctx context.Context, c *colleague) {
	c.feeding.Lock()
	defer c.feeding.Unlock()
	var m replicas
	for _, p := range k.standbyFor(c) {
		for more := true; more; {
			if more = k.append(&m, c, p); len(m.records) >= messageBytes-recordBytes {
				k.sendReplicas(ctx, c, &m)
			}
		}
	}
	k.sendReplicas(ctx, c, &m)
}

// Flush ceases to admit, and sends the standbys all that they have not been sent yet: so they
// miss nothing when this node ends without having handed over what it holds.
func (k *Custody) Flush(ctx context.Context) {
	k.mu.Lock()
	var peers []*colleague
	for p := range k.parts {
		k.Shard.Close(uint32(p))
	}
	for _, c := range k.peers {
		peers = append(peers, c)
	}
	k.mu.Unlock()
	var flushed sync.WaitGroup
	for _, c := range peers {
		flushed.Go(func() { k.replicateOnce(ctx, c) })
	}
	flushed.Wait()
}

// standbyFor returns the partitions that this node holds and of which c is the standby.
func (k *Custody) standbyFor(c *colleague) (partitions []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.peers[c.member.ID] != c {
		return nil
	}
	for p := range k.parts {
		if k.parts[p].standby == c.member.ID {
			partitions = append(partitions, uint32(p))
		}
	}
	return partitions
}

// append adds what has changed in p. It reports whether there is more.
func (k *Custody) append(m *replicas, c *colleague, p uint32) (more bool) {
	from := len(m.records)
	m.records, more = k.Shard.Changes(p, shard.ToStandby, m.records, recordBytes)
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	if pt.token.state != active || pt.standby != c.member.ID {
		m.records = m.records[:from] // whoever has it now sends all of it
		return false
	}
	whole := !more && !pt.whole
	if len(m.records) == from && !whole {
		return more
	}
	pt.sequence++
	m.items = append(m.items, &peerv1.Replica{
		Partition: p, Generation: uint64(pt.token.gen), Sequence: pt.sequence,
		Records: m.records[from:len(m.records):len(m.records)], Begin: !pt.begun, Whole: pt.whole || whole,
	})
	pt.begun, pt.whole = true, pt.whole || whole
	return more
}

// sendReplicas sends what was put together. What does not arrive, or does not fit, is sent anew
// from the beginning.
func (k *Custody) sendReplicas(ctx context.Context, c *colleague, m *replicas) {
	if len(m.items) == 0 {
		return
	}
	caller := k.caller(c)
	caller.To = 0 // who was restarted may have copies before a view knows it
	call, cancel := context.WithTimeout(ctx, callTimeout)
	resp, err := c.client.Replicate(call, &peerv1.ReplicateRequest{Caller: caller, Replicas: m.items})
	cancel()
	again := resp.GetAgain()
	if err != nil {
		for _, r := range m.items {
			again = append(again, r.GetPartition())
		}
	}
	if len(again) > 0 {
		k.restart(c, again)
	}
	clear(m.items)
	m.items, m.records = m.items[:0], m.records[:0]
}

// restart has partitions sent to their standby from the beginning.
func (k *Custody) restart(c *colleague, partitions []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range partitions {
		if int(p) >= len(k.parts) {
			continue
		}
		if pt := &k.parts[p]; pt.standby == c.member.ID {
			k.Shard.Unfollow(p, shard.ToStandby)
			k.Shard.Follow(p, shard.ToStandby)
			pt.begun, pt.whole = false, false
		}
	}
}

// grantor is who has granted something in place of a partition's holder.
type grantor struct {
	id        string
	partition uint32
}

// delivery is the last batch of a grantor's grants that was added, and which life of it has
// numbered that.
type delivery struct{ incarnation, batch uint64 }

// outgoing is a batch of grants that is on its way.
type outgoing struct {
	batch  uint64
	grants []shard.Grant
}

// returnGrants tells a colleague what this node has granted in its place, once it is there again.
func (k *Custody) returnGrants(ctx context.Context, c *colleague) {
	if !k.Router.Reaches(c.member.ID) {
		return
	}
	for p := range k.parts {
		k.prepare(uint32(p))
	}
	for p, o := range k.outgoing(c) {
		caller := k.caller(c)
		caller.Incarnation = k.origin
		call, cancel := context.WithTimeout(ctx, callTimeout)
		few := o.grants[:min(len(o.grants), maxGrantBatch)]
		resp, err := c.client.AddGrants(call, &peerv1.AddGrantsRequest{
			Caller: caller, Partition: p, Batch: o.batch, Grants: appendGrants(nil, few),
		})
		cancel()
		if err == nil && resp.GetAdded() {
			k.delivered(p, o.batch, len(few))
		}
	}
}

// enclose adds grants to what is on its way to p's owner, under a new number.
func (k *Custody) enclose(p uint32, grants []shard.Grant) {
	if len(grants) > 0 {
		k.batch++
		k.outbox[p] = outgoing{k.batch, append(k.outbox[p].grants, grants...)}
	}
}

// delivered takes the first grants of a batch off those that are on their way.
func (k *Custody) delivered(p uint32, batch uint64, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch o := k.outbox[p]; {
	case o.batch != batch:
	case len(o.grants) == n:
		delete(k.outbox, p)
	default:
		k.batch++
		k.outbox[p] = outgoing{k.batch, o.grants[n:]}
	}
}

// prepare makes a batch of what was granted in p, unless one is on its way.
func (k *Custody) prepare(p uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, under := k.outbox[p]; under || k.view == nil || k.claim(p).owner == k.party {
		return
	}
	k.enclose(p, k.Shard.Grants(p, maxGrantBatch))
}

// outgoing returns the batches that are for c.
func (k *Custody) outgoing(c *colleague) map[uint32]outgoing {
	k.mu.Lock()
	defer k.mu.Unlock()
	batches := make(map[uint32]outgoing)
	for p, o := range k.outbox {
		if k.claim(p).owner.id == c.member.ID {
			batches[p] = o
		}
	}
	return batches
}
