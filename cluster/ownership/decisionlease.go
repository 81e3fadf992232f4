package ownership

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// Times of the decision lease.
const (
	lookEvery  = replica.SuspendAfter / 4
	hearWithin = 500 * time.Millisecond // the standbys are to answer
	dropEvery  = 5 * time.Second
)

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
			n.dropUnused()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look has the decision lease look at the clock, then learn something, and the shard decide by it. If nothing but the standbys' replies is
// outstanding, they are asked.
func (n *Node) look(learn func(replica.Lease) replica.Lease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if looked := n.lease.Looked; !looked.IsZero() && now.Sub(looked) >= replica.SuspendAfter {
		n.halted = now
	}
	lapses := n.lease.Lapses
	n.lease = learn(n.lease.Look(now))
	if n.lease.Lapses != lapses && n.lease.Role == replica.IsMember {
		n.lapsed = now
	}
	n.setLease()
	if n.lease.Due() && !n.hearing && n.ctx != nil && n.ctx.Err() == nil {
		n.hearing = true
		n.running.Go(func() { n.resume(n.ctx) })
	}
}

// Answered records that a node has answered a heartbeat that was sent then, with the number of the newest view that it knew.
func (n *Node) Answered(by view.Life, number uint64, sent time.Time) {
	n.look(func(l replica.Lease) replica.Lease { return l.Answered(by, number, sent) })
}

// Granted records that etcd has granted a lease to this node just now.
func (n *Node) Granted() {
	n.look(func(l replica.Lease) replica.Lease { return l.Granted(time.Now()) })
}

// Read records that a linearizable read of the view, which began then, has found the view of that number, 0 for none. It was adopted.
func (n *Node) Read(began time.Time, number uint64) {
	n.look(func(l replica.Lease) replica.Lease { return l.Read(began, number) })
}

// Renewed records a renewal of the etcd lease that was sent then and has succeeded.
func (n *Node) Renewed(sent time.Time) {
	n.look(func(l replica.Lease) replica.Lease { return l.Renewed(sent) })
}

// resume hears the standbys, then lets this node decide again. If the decision lease lapses meanwhile, or another view is adopted, it hears them again.
func (n *Node) resume(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	for {
		n.mu.Lock()
		number, lapses := n.number(), n.lease.Lapses
		n.mu.Unlock()
		heard := n.hearStandbys(call)
		n.mu.Lock()
		if n.number() != number && call.Err() == nil {
			n.mu.Unlock()
			continue
		}
		n.lease = n.lease.Resume(time.Now(), lapses)
		if n.noteUntil(); n.isValid() {
			n.resumeParts(heard)
			n.setLease() // only now: what the standbys have granted is counted
			close(n.resumed)
			n.resumed = make(chan struct{})
		}
		n.hearing = false
		n.mu.Unlock()
		return
	}
}

// returnWithin is how long after a lapse or a halt of this node others may not have been heard for no fault of theirs.
const returnWithin = 500 * time.Millisecond

// Returning returns a channel that is closed when this node may decide again, if its decision lease has lapsed just now, or else nil.
func (n *Node) Returning() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isValid() || !n.standsStill() && (n.lapsed.IsZero() || time.Since(n.lapsed) >= returnWithin) {
		return nil
	}
	return n.resumed
}

// standsStill reports whether this node has not looked at the clock for long, and so goes on only now. n.mu is held.
func (n *Node) standsStill() bool {
	return !n.lease.Looked.IsZero() && time.Since(n.lease.Looked) >= replica.SuspendAfter
}

// WasHalted reports whether this node has gone on just now after it did not run for a while.
func (n *Node) WasHalted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.standsStill() || !n.halted.IsZero() && time.Since(n.halted) < returnWithin
}

// Until returns when the decision lease ends if no witness answers from now on, and whether it never does.
func (n *Node) Until() (until time.Time, forever bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lease.Witnessed()
}

// number returns the number of the newest view, 0 before the first.
func (n *Node) number() uint64 {
	if n.view == nil {
		return 0
	}
	return n.view.Number
}

// hearing is what one standby has granted.
type hearing struct {
	from  view.Life
	posts []Post
}

// hearStandbys asks the standbys of all partitions that this node decides for what they have granted.
func (n *Node) hearStandbys(ctx context.Context) (heard []hearing) {
	var lives []view.Life
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		if l := x.replica.Claim.Standby; x.replica.State == replica.Deciding && l != (view.Life{}) && !slices.Contains(lives, l) {
			lives = append(lives, l)
		}
		x.mu.Unlock()
	}
	return n.hearAll(ctx, lives)
}

// hearAll asks nodes for what they have granted of partitions that this node owns, or is the standby of while they do not reach the owner.
func (n *Node) hearAll(ctx context.Context, lives []view.Life) []hearing {
	heard := make([]hearing, len(lives))
	var all sync.WaitGroup
	for i, l := range lives {
		all.Go(func() {
			if posts, err := n.Peers.Hear(ctx, l); err == nil {
				heard[i] = hearing{l, posts}
			}
		})
	}
	all.Wait()
	return heard
}

// resumeParts adds what the standbys have granted, and has those replicas go on that waited for the decision lease. n.mu is held.
func (n *Node) resumeParts(heard []hearing) {
	for _, h := range heard {
		n.Add(h.from, h.posts)
	}
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		if x.replica.State == replica.Waiting {
			n.step(uint32(p), replica.Event{Kind: replica.Resumed}, nil)
		}
		x.mu.Unlock()
	}
}
