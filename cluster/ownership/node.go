// Package ownership drives a node's copies of partitions by what views say.
//
// A Node has a replica.Replica of each partition. It feeds standbys and learners, hands final states over, and posts what it has granted
// from copies. One goroutine serves each other node, and one looks at the clock. A partition's lock is never held over a call.
package ownership

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// Config says what a Node works with. Every field is required.
type Config struct {
	// Self is this life of the node.
	Self view.Life
	// Shard has the counters. All of its partitions are sealed at first.
	Shard *shard.Shard
	// Partitions is how many there are.
	Partitions int
	// Plan returns where the ring wants the partitions of a view.
	Plan func(v *view.View) view.Plan
	// Peers carries messages to other nodes.
	Peers Peers
	// Reports returns what is known of all nodes, newest first of each.
	Reports func() view.Reports
	// IsGone reports whether the etcd lease of a life was gone at some moment after the view of that number was written.
	IsGone func(l view.Life, number uint64) bool
	// HasSaidFarewell reports whether a life has said that it has ended to decide, for good. It is called with locks held.
	HasSaidFarewell func(l view.Life) bool
	// StandIns returns by partition the life that stands in for an owner that has said farewell, or for all that may have a copy, the zero value for none; nil if
	// there are none at all.
	StandIns func() []view.Life
	// Attest is called before the node looks at the clock, many times a second: what etcd has granted and renewed is told meanwhile.
	Attest func()
	// Observer is told what becomes of partitions.
	Observer Observer
	Logger   *slog.Logger
}

// Move says how a node has begun or ceased to decide in a partition.
type Move uint8

// The ways.
const (
	HandedOver Move = iota // it ceases, and gives its final state to the next owner
	Displaced              // it ceases, as the view does not name it as a member any more
	Received               // it begins, with the final state of its predecessor
	Continued              // it begins with its copy, as its predecessor has ended
)

// Observer is told what becomes of a node's partitions. The methods are called with the partition's lock held.
type Observer interface {
	// Opened is called before a partition decides: what was promised about its counters is void.
	Opened(p uint32)
	// Moved is called when this node begins or ceases to decide in a partition.
	Moved(how Move)
	// Added is called when grants of another node were added to that many counters.
	Added(counters int)
	// Followed is called when this node begins to feed another standby: the zero value for none.
	Followed(p uint32, standby view.Life)
	// Begin begins a round of a partition: all that was granted before is among the changes that are collected after it. It returns the
	// round's number, 0 if nothing waits for it.
	Begin(p uint32) uint64
	// Acknowledged says that the standby has all changes of a round, of which it was sent the last then.
	Acknowledged(p uint32, round uint64, sent time.Time)
}

// Peers carries messages to other nodes, one call each. It adds who the sender is and the number of its view: a node that hears of a newer
// view than its own fetches it, which is no matter of this package.
type Peers interface {
	// Feed sends changes. There is one receipt for each. They may arrive several times. Final is closed once a final state is due to that node: then they are urgent.
	Feed(ctx context.Context, to view.Life, changes []*Changes, final <-chan struct{}) ([]Receipt, error)
	// Post sends deltas to an owner. There is one answer for each.
	Post(ctx context.Context, to view.Life, posts []Post) (answers []Posting, err error)
	// Hear asks a node for all of its deltas of partitions that the caller owns, or is the standby of, and for the number of the view that it has adopted.
	Hear(ctx context.Context, to view.Life) (posts []Post, adopted uint64, err error)
	// Ask asks a node for copies.
	Ask(ctx context.Context, to view.Life, requests []Request) error
	// Versions asks a node which copies it has of partitions, the zero version for none.
	Versions(ctx context.Context, to view.Life, partitions []uint32) ([]replica.Version, error)
	// Reaches reports whether a node answers this one.
	Reaches(l view.Life) bool
	// ReachesID reports whether some life of a node answers this one.
	ReachesID(id string) bool
	// HasEnded reports whether a life is known to have ended: a later one has its id.
	HasEnded(l view.Life) bool
}

// Node drives the replicas of all partitions on one life of a node. It is safe for concurrent use.
type Node struct {
	shared
	parts    partitions
	standsIn bool          // in some partition; owned by watch
	lookSoon chan struct{} // full when watch is to look at once; has room for one

	// Guarded by mu of decisionLease.
	view    *view.View
	plan    view.Plan // of view
	report  view.Report
	endings map[view.Life]replica.Ending // of lives that view names
}

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

// LookSoon has the node find out at once which lives have ended, and where it stands in for them.
func (n *Node) LookSoon() { fill(n.lookSoon) }

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

// Become makes the node another life. No view that it has adopted names the one before.
func (n *Node) Become(l view.Life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.decisionLease.become(l)
	n.report = view.Report{Life: l}
	for x := range n.parts.each {
		x.replica.Self = l
	}
}

// View returns the newest view that was adopted, nil before the first.
func (n *Node) View() *view.View {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view
}

// Deciding returns by partition the term in which this node decides at the moment, 0 where it does not.
func (n *Node) Deciding() []uint64 {
	terms := make([]uint64, len(n.parts))
	for x := range n.parts.each {
		if x.replica.State == replica.Deciding && n.isValid() {
			terms[x.p] = x.replica.Claim.Term
		}
	}
	return terms
}

// IsWaiting reports whether this node owns a partition and has not settled.
func (n *Node) IsWaiting() bool { return n.waiting.Load() > 0 }

// Report returns what this node reports for views: the view that it has adopted, and which partitions are settled and complete in that.
func (n *Node) Report() view.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.view == nil || !n.reportDue.Swap(false) && n.report.Adopted == n.view.Number {
		return n.report
	}
	r, news := n.report.Following(n.view, n.plan, func(p int) bool {
		settled, _ := n.parts.report(p)
		return settled
	}, func(p int) bool {
		_, complete := n.parts.report(p)
		return complete
	})
	if news {
		n.report = r
	}
	return n.report
}

// Counts says how many partitions are in which state on a node.
type Counts struct {
	Deciding, Waiting int
	Planned           int // that the plan gives to it and that another node owns
	Standby           int // of which it is the standby of the newest view, and another node can be
	Owed              int // of which it has something that others are yet to get, and that it does not own
}

// Count counts the partitions.
func (n *Node) Count() (c Counts) {
	n.mu.Lock()
	plan := n.plan
	n.mu.Unlock()
	for x := range n.parts.each {
		switch r := &x.replica; {
		case r.State == replica.Deciding:
			c.Deciding++
		case r.State == replica.Waiting:
			c.Waiting++
		default:
			if int(x.p) < len(plan) && plan[x.p].Owner == r.Self.ID && r.Claim.Owner != r.Self {
				c.Planned++
			}
			if int(x.p) < len(plan) && plan[x.p].Standby != "" && r.Claim.Standby == r.Self {
				c.Standby++
			}
			if x.out.final.Term > 0 || r.Deltas.Count() > 0 || n.Shard.HasGrants(x.p) {
				c.Owed++
			}
		}
	}
	return c
}

// Replica returns the replica of a partition as it stands, and how many of its deltas its owner may not have, for people to read.
func (n *Node) Replica(p uint32) (r replica.Replica, deltas int) {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.replica, len(x.deltas.own.batches)
}
