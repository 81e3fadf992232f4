package ownership

import (
	"context"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// maxRequests bounds the partitions of one call that asks for final states.
const maxRequests = 1 << 14

// ask asks a peer for the final states that this node waits for.
func (n *Node) ask(ctx context.Context, c *peer) {
	if n.waiting.Load() == 0 {
		return
	}
	var requests []Request
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		if r := &x.replica; r.Lacks(c.life) && x.intake.from != c.life && len(requests) < maxRequests {
			requests = append(requests, Request{Partition: uint32(p), Term: r.Claim.Term})
		}
		x.mu.Unlock()
	}
	if len(requests) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := n.Peers.Ask(call, c.life, requests); err != nil {
		n.Logger.Debug("predecessor not asked", "predecessor", c.life.ID, "partitions", len(requests), "error", err)
	}
}

// Give has this node give final states to an owner, which has asked for them.
func (n *Node) Give(owner view.Life, requests []Request) {
	for _, q := range requests {
		if int(q.Partition) >= len(n.parts) {
			continue
		}
		x := &n.parts[q.Partition]
		x.mu.Lock()
		switch r := &x.replica; {
		case r.Claim.Term != q.Term, x.final.Term == q.Term:
		case q.Salvages && r.Claim.Owner == owner && r.Version.Term > 0:
			x.final = q
			n.assignFeeds(q.Partition)
		case !q.Salvages:
			n.step(q.Partition, replica.Event{Kind: replica.Ask, From: owner}, nil)
		}
		x.mu.Unlock()
	}
}

// endPredecessors tells replicas which predecessors have ended.
func (n *Node) endPredecessors() {
	if n.waiting.Load() == 0 {
		return
	}
	waited := make(map[view.Life]uint64) // the term of the latest owner that waits for it
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		if r := &x.replica; r.State == replica.Waiting {
			for _, l := range r.Claim.Predecessors {
				if r.Lacks(l) {
					waited[l] = max(waited[l], r.Claim.Term)
				}
			}
		}
		x.mu.Unlock()
	}
	for _, l := range n.observe(waited) {
		n.endPredecessor(l)
	}
}

// observe returns the lives that have ended.
func (n *Node) observe(waited map[view.Life]uint64) (ended []view.Life) {
	reports, now := n.Reports(), time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for l, term := range waited {
		e := n.endings[l].Observe(now, n.view.HaveLeft(term, reports) && n.IsGone(l, term))
		n.endings[l] = e
		if e.HasEnded(now) {
			ended = append(ended, l)
		}
	}
	return ended
}

func (n *Node) endPredecessor(l view.Life) {
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		if x.replica.Lacks(l) && !x.salvages() {
			n.step(uint32(p), replica.Event{Kind: replica.Ended, From: l}, nil)
		}
		x.mu.Unlock()
	}
}
