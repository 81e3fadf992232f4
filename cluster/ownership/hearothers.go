package ownership

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// askWithin is how long a node waits for the members' answers before it grants from a copy.
const askWithin = 40 * time.Millisecond

// hearAgain is how long it waits before it asks a member again whose call has failed.
const hearAgain = 2 * time.Millisecond

// hearOthers asks the members for what they have granted, each time that this node gets copies that it may grant from, or becomes owner, until ctx ends. A
// former standby may have granted until it has heard of another one.
func (n *Node) hearOthers(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.unasked:
			n.hearOthersOnce(ctx)
		}
	}
}

// hearOthersOnce asks for all partitions that are to be asked for now. A member that does not answer keeps only those waiting of which it may have granted something.
func (n *Node) hearOthersOnce(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	left, awaited := n.unheard(), make(map[view.Life]bool)
	for l := range *n.byLife.Load() {
		if n.Peers.Reaches(l) {
			awaited[l] = true
		}
	}
	for heard, goesOn := n.hearEach(call, slices.Collect(maps.Keys(awaited)), true), true; goesOn; {
		if len(awaited) == 1 { // the owner of some of them, it may be
			n.noteAsked(left, awaited)
		}
		if len(left) == 0 {
			cancel()
		}
		var h hearing
		if h, goesOn = <-heard; goesOn {
			delete(awaited, h.from)
			n.Add(h.from, h.posts)
		}
	}
	n.noteAsked(left, nil)
}

// unheard returns the partitions for which the members are to be asked, with the number of the view that each has adopted.
func (n *Node) unheard() map[uint32]uint64 {
	numbers := make(map[uint32]uint64)
	n.mu.Lock() // a view that is adopted meanwhile is in all partitions then
	defer n.mu.Unlock()
	for x := range n.parts.each {
		if x.deltas.asked == unasked || x.mustHear() {
			numbers[x.p] = x.replica.Claim.Number
		}
	}
	return numbers
}

// noteAsked notes that all members were asked but those that are awaited, and takes from left the partitions for which that is enough.
func (n *Node) noteAsked(left map[uint32]uint64, awaited map[view.Life]bool) {
	for p, number := range left {
		x := &n.parts[p]
		x.mu.Lock()
		switch {
		case x.replica.Claim.Number != number:
			if x.deltas.asked == unasked || x.mustHear() {
				fill(n.unasked)
			}
			delete(left, p)
		case len(awaited) == 0 || awaited[x.replica.Claim.Owner] && x.isFedByOwner():
			x.wereAsked()
			delete(left, p)
		}
		x.mu.Unlock()
	}
	n.LookSoon() // predecessors may have ended
}

// isFedByOwner reports whether the owner has decided already, as it has fed this copy: all that it has ever granted from a copy is in what it has. x.mu is held.
func (x *partition) isFedByOwner() bool { return x.replica.Version.Term == x.replica.Claim.Term }

// wereAsked notes that the members were asked for what they have granted. x.mu is held.
func (x *partition) wereAsked() {
	if x.replica.State == replica.Waiting {
		x.deltas.heard = x.replica.Claim.Term
	}
	if x.deltas.asked == unasked {
		x.deltas.asked = wasAsked
		x.setGate(x.replica.State)
	}
}

// mustHear reports whether this node is the owner, and asks the members before it decides from its copy. x.mu is held.
func (x *partition) mustHear() bool {
	r := &x.replica
	return r.State == replica.Waiting && x.deltas.heard != r.Claim.Term
}

// hearing is what one standby has granted.
type hearing struct {
	from  view.Life
	posts []Post
}

// hearEach asks nodes for what they have granted of partitions that this node owns, or is the standby of while they do not reach the owner. It sends what each
// has answered, nothing of one that fails: that may have granted something, and is asked again as long as it is reached, if again says so. It ends with ctx at the latest.
func (n *shared) hearEach(ctx context.Context, lives []view.Life, again bool) <-chan hearing {
	heard := make(chan hearing, len(lives))
	var all sync.WaitGroup
	for _, l := range lives {
		all.Go(func() {
			posts, err := n.Peers.Hear(ctx, l)
			for again && err != nil && n.Peers.Reaches(l) && ctx.Err() == nil { // its connection was reset, as it may be
				pause(ctx, hearAgain, nil)
				posts, err = n.Peers.Hear(ctx, l)
			}
			if err == nil {
				heard <- hearing{l, posts}
			}
		})
	}
	go func() {
		all.Wait()
		close(heard)
	}()
	return heard
}
