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

// Pauses before a member is asked again whose call has failed, or which has an earlier view: each is twice as long as the one before.
const (
	hearAgain     = 2 * time.Millisecond
	hearAgainMost = 16 * time.Millisecond
)

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
	left, number := n.beginHearing()
	awaited := make(map[view.Life]bool)
	for l := range *n.byLife.Load() {
		if n.Peers.Reaches(l) {
			awaited[l] = true
		}
	}
	heard := n.hearEach(call, slices.Collect(maps.Keys(awaited)), number, func(l view.Life) bool { return n.Peers.ReachesID(l.ID) })
	for goesOn := true; goesOn; {
		if len(awaited) == 1 { // the owner of some of them, it may be
			n.noteAsked(left, awaited)
		}
		if len(left) == 0 {
			cancel()
		}
		var h hearing
		if h, goesOn = <-heard; goesOn {
			n.Add(h.from, h.posts)
			if h.last {
				delete(awaited, h.from)
			}
		}
	}
	n.noteAsked(left, nil)
}

// beginHearing returns the partitions for which the members are to be asked, with the number of the view that each has adopted, and the greatest of those.
func (n *Node) beginHearing() (left map[uint32]uint64, number uint64) {
	left = make(map[uint32]uint64)
	n.mu.Lock() // a view that is adopted meanwhile is in all partitions then
	defer n.mu.Unlock()
	for x := range n.parts.each {
		if x.deltas.asked == unasked || x.mustHear() {
			left[x.p] = x.replica.Claim.Number
			number = max(number, x.replica.Claim.Number)
		}
		if x.deltas.asked == unasked {
			x.deltas.asked = asking
		}
	}
	return left, number
}

// noteAsked notes that all members were asked but those that are awaited, and takes from left the partitions for which that is enough.
func (n *Node) noteAsked(left map[uint32]uint64, awaited map[view.Life]bool) {
	for p, number := range left {
		x := &n.parts[p]
		x.mu.Lock()
		switch {
		case x.replica.Claim.Number != number:
			if x.deltas.asked == asking {
				x.deltas.asked = unasked
			}
			if x.deltas.asked == unasked || x.mustHear() {
				fill(n.unasked)
			}
			delete(left, p)
		case len(awaited) == 0 || awaited[x.replica.Claim.Owner] && x.replica.IsFed():
			x.wereAsked()
			delete(left, p)
		}
		x.mu.Unlock()
	}
	n.LookSoon() // predecessors may have ended
}

// wereAsked notes that the members were asked for what they have granted. x.mu is held.
func (x *partition) wereAsked() {
	if x.replica.State == replica.Waiting {
		x.deltas.heard = x.replica.Claim.Term
	}
	if x.deltas.asked == asking { // not of a copy that this node has got since
		x.deltas.asked = wasAsked
		x.setGate(x.replica.State)
	}
}

// hearing is what one node has granted, as it says, or that it is not asked any more.
type hearing struct {
	from     view.Life
	posts    []Post
	at       time.Time // when the call has ended
	answered bool      // else it has failed
	last     bool      // it is not asked again
}

// hearEach asks nodes for what they have granted of partitions that this node owns, or is the standby of while they do not reach the owner. It sends what they
// answer, and ends with ctx at the latest: its caller receives until then. A node is asked again if it has not adopted the view of that number yet, before which it may
// still grant, or if the call fails and mayAnswer says so.
func (n *shared) hearEach(ctx context.Context, lives []view.Life, number uint64, mayAnswer func(view.Life) bool) <-chan hearing {
	heard := make(chan hearing)
	var all sync.WaitGroup
	for _, l := range lives {
		all.Go(func() {
			for again := hearAgain; ; again = min(2*again, hearAgainMost) {
				posts, adopted, err := n.Peers.Hear(ctx, l)
				if err != nil && ctx.Err() != nil {
					return
				}
				last := err == nil && adopted >= number || err != nil && !mayAnswer(l)
				heard <- hearing{l, posts, time.Now(), err == nil, last}
				if last {
					return
				}
				pause(ctx, again, nil)
			}
		})
	}
	go func() {
		all.Wait()
		close(heard)
	}()
	return heard
}
