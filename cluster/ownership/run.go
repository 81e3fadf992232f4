package ownership

import (
	"context"
	"maps"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// Times of watch.
const (
	lookEvery = replica.SuspendAfter / 4
	dropEvery = 5 * time.Second
)

// NewNode returns the driver of a node that has no copy of anything. It seals all partitions.
func NewNode(c Config) *Node {
	n := &Node{parts: make(partitions, c.Partitions), report: view.Report{Life: c.Self}, endings: make(map[view.Life]replica.Ending)}
	n.Config, n.unasked, n.lookSoon = c, make(chan struct{}, 1), make(chan struct{}, 1)
	n.shard, n.started, n.hear, n.lease, n.resumed = c.Shard, time.Now(), n.startResume, replica.NewLease(c.Self), make(chan struct{})
	n.byLife.Store(&map[view.Life]*peer{})
	for p := range n.parts {
		x := &n.parts[p]
		x.node, x.p = &n.shared, uint32(p)
		x.replica.Self, x.replica.Grantor = c.Self, c.Self
		x.replica.Deltas = replica.Deltas{First: 1, Next: 1}
		c.Shard.Seal(x.p)
		c.Shard.Withhold(x.p, true)
	}
	c.Shard.OnUrgent(n.Hurry)
	n.setLease()
	return n
}

// Run drives the replicas until ctx ends.
func (n *Node) Run(ctx context.Context) {
	n.mu.Lock()
	n.ctx = ctx
	if n.view != nil {
		n.meet(n.view)
	}
	n.mu.Unlock()
	n.running.Go(func() { n.hearOthers(ctx) })
	n.watch(ctx)
	n.mu.Lock()
	for _, c := range *n.byLife.Load() {
		c.leave()
	}
	n.mu.Unlock()
	n.running.Wait()
}

// watch looks at the clock every lookEvery: a node that does not was stopped. It has the standbys heard, and finds out which predecessors
// have ended.
func (n *Node) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	dropped := time.Now()
	for looks := 0; ; looks++ {
		n.Attest()
		n.look(func(l replica.Lease) replica.Lease { return l })
		if looks%int(feedEvery/lookEvery) == 0 {
			n.remind()
		}
		n.endPredecessors()
		n.standIn()
		if time.Since(dropped) >= dropEvery {
			dropped = time.Now()
			n.parts.dropUnused()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-n.lookSoon:
		}
	}
}

// Adopt makes v the view, unless a newer one is, and has the node find out at once what LookSoon says.
func (n *Node) Adopt(v *view.View) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.view != nil && v.Number <= n.view.Number || len(v.Partitions) != len(n.parts) {
		return
	}
	n.decisionLease.adopt(v)
	n.view = v
	if n.joined.Load() == 0 && v.IsMember(n.report.Life) {
		n.joined.Store(time.Now().UnixNano())
	}
	n.meet(v)
	n.plan = n.Plan(v)
	for x := range n.parts.each {
		x.adopt(v, n.plan)
	}
	n.setLease()
	maps.DeleteFunc(n.endings, func(l view.Life, _ replica.Ending) bool { return !v.Names(l) })
	n.LookSoon()
}
