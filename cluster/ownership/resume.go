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
	reconnectWithin = 350 * time.Millisecond // after it was cut off, it has connected again to most of those that it reaches
	freshAnswer     = 20 * time.Millisecond  // an answer that may be older is asked for once more: a standby grants until the node decides
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
	var heard []hearing
	for {
		n.mu.Lock()
		number, lapses, wasCutOff := n.lease.Number, n.lease.Lapses, n.wasCutOff
		n.mu.Unlock()
		heard = append(heard, n.hearStandbys(ctx, call, n.parts.standbys(), number, wasCutOff)...)
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

// hearStandbys returns what standbys have granted, as they say until call ends, or a newer view than that of a number is adopted. If this node was cut off, it may connect
// to them again just now: it repeats calls that fail, unless a later life of the standby is there. A standby that has answered long before others is heard once more.
func (n *shared) hearStandbys(ctx, call context.Context, lives []view.Life, number uint64, wasCutOff bool) (heard []hearing) {
	began := time.Now()
	round, end := context.WithCancel(call)
	defer end()
	mayAnswer := func(l view.Life) bool {
		return wasCutOff && time.Since(began) < reconnectWithin && !n.Peers.HasEnded(l)
	}
	look := time.NewTicker(hearAgainMost)
	defer look.Stop()
	answers := n.hearEach(round, lives, 0, mayAnswer)
	for goesOn := true; goesOn; {
		var h hearing
		select {
		case h, goesOn = <-answers:
			if goesOn {
				heard = append(heard, h)
			}
		case <-look.C:
			if !n.isAt(number) {
				end()
			}
		}
	}
	return append(heard, n.hearOnceMore(ctx, heard)...)
}

// hearOnceMore asks those standbys again that have answered a while ago: they grant until this node decides.
func (n *shared) hearOnceMore(ctx context.Context, heard []hearing) (more []hearing) {
	var old []view.Life
	for _, h := range heard {
		if h.answered && time.Since(h.at) >= freshAnswer {
			old = append(old, h.from)
		}
	}
	again, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	for h := range n.hearEach(again, old, 0, func(view.Life) bool { return false }) {
		more = append(more, h)
	}
	return more
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
