package ownership

import (
	"context"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// askWithin is how long a node waits for the members' answers before it grants from a copy.
const askWithin = 40 * time.Millisecond

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

func (n *Node) hearOthersOnce(ctx context.Context) {
	numbers := make(map[uint32]uint64) // by partition for which they are to be asked, the view that it has adopted
	for x := range n.parts.each {
		if x.deltas.asked == unasked || x.mustHear() {
			numbers[x.p] = x.replica.Claim.Number
		}
	}
	var lives []view.Life
	for l := range *n.byLife.Load() {
		if n.Peers.Reaches(l) {
			lives = append(lives, l)
		}
	}
	call, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	for _, h := range n.hearAll(call, lives) {
		n.Add(h.from, h.posts)
	}
	for p, number := range numbers {
		x := &n.parts[p]
		x.mu.Lock()
		if x.replica.Claim.Number == number {
			x.wereAsked()
		} else if x.deltas.asked == unasked || x.mustHear() {
			fill(n.unasked)
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
	if x.deltas.asked == unasked {
		x.deltas.asked = wasAsked
		x.setGate(x.replica.State)
	}
}

// mustHear reports whether this node is the owner, and asks the members before it decides from its copy. x.mu is held.
func (x *partition) mustHear() bool {
	r := &x.replica
	return r.State == replica.Waiting && r.IsGrantable() && x.deltas.heard != r.Claim.Term
}

// hearing is what one standby has granted.
type hearing struct {
	from  view.Life
	posts []Post
}

// hearAll asks nodes for what they have granted of partitions that this node owns, or is the standby of while they do not reach the owner.
func (n *shared) hearAll(ctx context.Context, lives []view.Life) []hearing {
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
