package ownership

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// Times before a node decides again.
const (
	hearWithin      = 500 * time.Millisecond // the standbys are to answer
	reconnectWithin = 350 * time.Millisecond // it has connected to those again that it reaches
)

// startResume starts to resume, if the node runs, and reports whether it has. n.mu is held.
func (n *Node) startResume() bool {
	if n.ctx == nil || n.ctx.Err() != nil {
		return false
	}
	n.running.Go(func() { n.resume(n.ctx) })
	return true
}

// resume hears the standbys, then lets this node decide again. If the decision lease lapses meanwhile, or another view is adopted, it hears them again.
func (n *Node) resume(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, hearWithin)
	defer cancel()
	for {
		n.mu.Lock()
		number, lapses := n.lease.Number, n.lease.Lapses
		n.mu.Unlock()
		var heard []hearing
		for h := range n.hearEach(call, n.parts.standbys(), 0, reconnectWithin) {
			heard = append(heard, h)
		}
		n.mu.Lock()
		if n.lease.Number != number && call.Err() == nil {
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

// standbys returns those of all partitions that this node decides.
func (ps partitions) standbys() (lives []view.Life) {
	for x := range ps.each {
		if l := x.replica.Claim.Standby; x.replica.State == replica.Deciding && l != (view.Life{}) && !slices.Contains(lives, l) {
			lives = append(lives, l)
		}
	}
	return lives
}

// resumeParts adds what the standbys have granted, and has those replicas go on that waited for the decision lease. n.mu is held.
func (n *Node) resumeParts(heard []hearing) {
	for _, h := range heard {
		n.Add(h.from, h.posts)
	}
	for x := range n.parts.each {
		if x.replica.State == replica.Waiting {
			x.step(replica.Event{Kind: replica.Resumed}, nil)
		}
	}
}
