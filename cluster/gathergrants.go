package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/shard"
)

// Standbys may have granted in the place of a node whose decision lease is suspended, because it was stopped or had no
// witnesses. So before it decides again it gathers what they have granted, and has them ask it again first:
// what they grant after that, they grant because it does not answer (ADR 16). It asks them again, too: while it was
// stopped, their silence said nothing of them, and what it stands by for is theirs to decide, or of members that they reach.

// gather hears the standbys, for gatherTime at most, and makes the decision lease valid again.
func (k *Ownership) gather(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, gatherTime)
	defer cancel()
	for {
		k.mu.Lock()
		k.lease.look(time.Now())
		view, lapses, standbys := k.view, k.lease.lapses, k.standbysOf()
		k.mu.Unlock()
		var heard sync.WaitGroup
		for _, c := range standbys {
			heard.Go(func() { k.gatherFrom(ctx, c) })
		}
		heard.Wait()
		if k.resumeDeciding(view, lapses, len(standbys), ctx.Err() != nil) {
			return
		}
	}
}

// standbysOf returns the members that stand by for what this node holds.
func (k *Ownership) standbysOf() (standbys []*otherMember) {
	ids := make(map[string]bool)
	for p := range k.parts {
		ids[k.parts[p].standby] = true
	}
	for id, c := range k.peers {
		if ids[id] {
			standbys = append(standbys, c)
		}
	}
	return standbys
}

// resumeDeciding lets this node decide again. Its standbys by that view, asked of them, were heard since the count of
// the decision lease's lapses was the given one. It is false if they must be heard again.
func (k *Ownership) resumeDeciding(view *View, lapses uint64, asked int, overdue bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view != view && !overdue && k.ctx.Err() == nil {
		return false
	}
	k.gathering = false
	now := time.Now()
	if k.lease.resume(now, lapses) {
		if asked > 0 {
			k.Logger.Info("decision lease had lapsed, and the standbys were heard", "standbys", asked, "took", now.Sub(k.lease.returned).Round(time.Millisecond).String())
		}
		k.Shard.SetDecisionLease(k.lease.until())
		close(k.resumed)
		k.resumed = make(chan struct{})
	}
	return true
}

// gatherFrom adds what another member has granted in this node's place, until it knows of no more.
func (k *Ownership) gatherFrom(ctx context.Context, c *otherMember) {
	var added []*peerv1.GrantBatch
	for {
		caller := k.caller(c)
		caller.To = 0 // a standby that was restarted may have granted something since
		resp, err := c.client.Gather(ctx, &peerv1.GatherRequest{Caller: caller, Added: added})
		if err != nil {
			return
		}
		k.Router.greet(c.member.ID)
		k.learn(Life{c.member.ID, resp.GetIncarnation()}, resp.GetView(), nil)
		if resp.GetView() > caller.GetView() {
			k.catchUp(ctx, c.client, caller) // and perhaps there is nothing to admit for any more
			return
		}
		added = nil
		for _, b := range resp.GetBatches() {
			grants, err := parseGrants(b.GetGrants())
			if err != nil || !k.areOf(b.GetPartition(), grants) {
				k.Logger.Error("grants of a standby refused", "partition", b.GetPartition(), "from", c.member.ID, "error", err)
				continue
			}
			k.mu.Lock()
			from, this := grantor{c.member.ID, b.GetPartition()}, delivery{resp.GetIncarnation(), b.GetBatch()}
			if k.add(from, this, grants) {
				added = append(added, &peerv1.GrantBatch{Partition: b.GetPartition(), Batch: b.GetBatch(), Count: b.GetCount()})
			}
			k.mu.Unlock()
		}
		if len(added) == 0 {
			return
		}
	}
}

// areOf reports whether all grants are of counters of that partition, and there is one of that
// number.
func (k *Ownership) areOf(p uint32, grants []shard.Grant) bool {
	for i := range grants {
		if grants[i].Key.Partition(uint32(len(k.parts))) != p {
			return false
		}
	}
	return int(p) < len(k.parts)
}

// add counts a batch of grants, once. It is false if this node does not hold the partition, or has
// no witness that it still may, or the grantor is just fetching it, and was told what was added.
func (k *Ownership) add(from grantor, this delivery, grants []shard.Grant) bool {
	if last := k.added[from]; last.incarnation == this.incarnation && last.batch >= this.batch {
		return true
	}
	pt, until := &k.parts[from.partition], k.lease.witnessed()
	if pt.tenure.state != active || pt.moving && pt.mover == from.id || !until.IsZero() && !time.Now().Before(until) {
		return false
	}
	if redirected := k.Shard.AddGrants(grants); len(redirected) > 0 {
		return false
	}
	k.added[from] = this
	k.Logger.Debug("grants added", "partition", from.partition, "from", from.id, "batch", this.batch, "counters", len(grants))
	k.metrics.merged.Add(float64(len(grants)))
	return true
}

// hand returns what this node has granted in place of a member, as much as one message holds.
func (k *Ownership) hand(id string) *peerv1.GatherResponse {
	k.mu.Lock()
	resp := &peerv1.GatherResponse{View: k.number(), Incarnation: k.origin}
	k.mu.Unlock()
	size := 0
	for p, o := range k.outgoing(id) {
		if size >= messageBytes {
			break
		}
		encoded, n := packGrants(o.grants)
		resp.Batches = append(resp.Batches, &peerv1.GrantBatch{Partition: p, Batch: o.batch, Count: uint32(n), Grants: encoded})
		size += len(encoded)
	}
	return resp
}

// Returning implements Locator.
func (k *Ownership) Returning() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease.returns(time.Now(), returnWithin) {
		return k.resumed
	}
	return nil
}

// WasStopped implements Locator.
func (k *Ownership) WasStopped() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease.wasStopped(time.Now(), returnWithin)
}
