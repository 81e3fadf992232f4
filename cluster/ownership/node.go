// Package ownership drives a node's copies of partitions by what views say.
//
// A Node has a replica.Replica of each partition. It feeds standbys and learners, hands final states over, and posts what it has granted
// from copies. One goroutine serves each other node, and one looks at the clock. A partition's lock is never held over a call.
package ownership

import (
	"context"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
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
	// Feed sends changes. There is one receipt for each.
	Feed(ctx context.Context, to view.Life, changes []*Changes) ([]Receipt, error)
	// Post sends deltas to an owner. There is one answer for each.
	Post(ctx context.Context, to view.Life, posts []Post) (answers []Posting, err error)
	// Hear asks a standby for all of its deltas of partitions that the caller owns.
	Hear(ctx context.Context, to view.Life) ([]Post, error)
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
	Config
	parts    []partition
	standbys []atomic.Pointer[peer] // by partition that this node decides for, for those that do not lock
	started  time.Time
	until    atomic.Int64 // end of the decision lease, in nanoseconds since started; math.MaxInt64 for none
	batches  atomic.Int64 // own deltas in all partitions
	waiting  atomic.Int64 // partitions whose replica is Waiting
	isOver   atomic.Bool  // this node has ceased to decide, for good
	session  atomic.Uint64
	// reportDue says that what a replica reports has changed since report was made. It is set after the change.
	reportDue atomic.Bool
	standsIn  bool          // in some partition; owned by watch
	unasked   chan struct{} // full when a partition is unasked; has room for one
	peers     atomic.Pointer[map[view.Life]*peer]
	running   sync.WaitGroup

	mu      sync.Mutex // over partition.mu
	ctx     context.Context
	view    *view.View
	plan    view.Plan // of view
	report  view.Report
	lease   replica.Lease
	hearing bool          // standbys are asked for their deltas
	resumed chan struct{} // closed when the decision lease is valid again, and then another one
	lapsed  time.Time     // when this node has found last that its decision lease had lapsed
	halted  time.Time     // when it has found last that it had not looked at the clock for long
	endings map[view.Life]replica.Ending
}

// NewNode returns the driver of a node that has no copy of anything. It seals all partitions.
func NewNode(c Config) *Node {
	n := &Node{
		Config: c, parts: make([]partition, c.Partitions), standbys: make([]atomic.Pointer[peer], c.Partitions), unasked: make(chan struct{}, 1), started: time.Now(), lease: replica.NewLease(c.Self), resumed: make(chan struct{}),
		report: view.Report{Life: c.Self}, endings: make(map[view.Life]replica.Ending),
	}
	n.peers.Store(&map[view.Life]*peer{})
	for p := range n.parts {
		n.parts[p].replica.Self = c.Self
		n.parts[p].replica.Deltas = replica.Deltas{First: 1, Next: 1}
		c.Shard.Seal(uint32(p))
		c.Shard.Withhold(uint32(p), true)
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
	n.running.Go(func() { n.askOthers(ctx) })
	n.watch(ctx)
	n.mu.Lock()
	for _, c := range *n.peers.Load() {
		c.leave()
	}
	n.mu.Unlock()
	n.running.Wait()
}

// Adopt makes v the view, unless a newer one is.
func (n *Node) Adopt(v *view.View) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.view != nil && v.Number <= n.view.Number || len(v.Partitions) != len(n.parts) {
		return
	}
	n.lease = n.lease.Look(time.Now()).Adopt(v.Number, v.Lives())
	n.view = v
	n.meet(v)
	n.noteUntil()
	if !n.isValid() {
		n.setLease()
	}
	n.plan = n.Plan(v)
	for p := range n.parts {
		n.adopt(uint32(p), v, n.plan)
	}
	n.setLease()
	maps.DeleteFunc(n.endings, func(l view.Life, _ replica.Ending) bool { return !v.Names(l) })
}

// Become makes the node another life. No view that it has adopted names the one before.
func (n *Node) Become(l view.Life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lease := replica.NewLease(l)
	lease.Number, lease.Looked = n.lease.Number, n.lease.Looked
	n.lease, n.report = lease, view.Report{Life: l}
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		x.replica.Self = l
		x.mu.Unlock()
	}
}

// View returns the newest view that was adopted, nil before the first.
func (n *Node) View() *view.View {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view
}

// isValid reports whether the decision lease is valid.
func (n *Node) isValid() bool { return int64(time.Since(n.started)) < n.until.Load() }

// noteUntil records until when the decision lease is valid.
func (n *Node) noteUntil() (until time.Time, forever bool) {
	until, forever = n.lease.Until()
	if n.isOver.Load() {
		until, forever = time.Time{}, false
	}
	if forever {
		n.until.Store(math.MaxInt64)
	} else {
		n.until.Store(int64(until.Sub(n.started)))
	}
	return until, forever
}

// setLease has the shard decide as long as the decision lease is valid.
func (n *Node) setLease() {
	switch until, forever := n.noteUntil(); {
	case forever:
		n.Shard.SetDecisionLease(time.Time{})
	case until.IsZero():
		n.Shard.SetDecisionLease(n.started)
	default:
		n.Shard.SetDecisionLease(until)
	}
}

// Deciding returns by partition the term in which this node decides at the moment, 0 where it does not.
func (n *Node) Deciding() []uint64 {
	terms := make([]uint64, len(n.parts))
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		if x.replica.State == replica.Deciding && n.isValid() {
			terms[p] = x.replica.Claim.Term
		}
		x.mu.Unlock()
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
		settled, _ := n.reported(p)
		return settled
	}, func(p int) bool {
		_, complete := n.reported(p)
		return complete
	})
	if news {
		n.report = r
	}
	return n.report
}

func (n *Node) reported(p int) (settled, complete bool) {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.replica.Report()
}

// Owed returns in how many partitions this node has something that others are yet to get: it owns them, a final state is due, or deltas.
func (n *Node) Owed() (partitions int) {
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		if x.replica.State >= replica.Waiting || x.final.Term > 0 || x.replica.Deltas.Count() > 0 || n.Shard.HasGrants(uint32(p)) {
			partitions++
		}
		x.mu.Unlock()
	}
	return partitions
}
