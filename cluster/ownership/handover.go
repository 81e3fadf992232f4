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
func (c *sender) ask(ctx context.Context) {
	if c.node.waiting.Load() == 0 {
		return
	}
	var requests []Request
	for x := range c.node.parts.each {
		if r := &x.replica; r.Lacks(c.life) && x.in.feed.from != c.life && len(requests) < maxRequests {
			requests = append(requests, Request{Partition: x.p, Term: r.Claim.Term})
		}
	}
	if len(requests) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := c.node.Peers.Ask(call, c.life, requests); err != nil {
		c.node.Logger.Debug("predecessor not asked", "predecessor", c.life.ID, "partitions", len(requests), "error", err)
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
		case r.Claim.Term != q.Term, x.out.final.Term == q.Term:
		case q.Salvages && r.Claim.Owner == owner && r.Version.Term > 0:
			x.out.final = q
			x.assignFeeds()
		case !q.Salvages:
			x.step(replica.Event{Kind: replica.Ask, From: owner}, nil)
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
	for x := range n.parts.each {
		if r := &x.replica; r.State == replica.Waiting {
			for _, l := range r.Claim.Predecessors {
				if r.Lacks(l) {
					waited[l] = max(waited[l], r.Claim.Term)
				}
			}
		}
	}
	for _, l := range n.observe(waited) {
		n.parts.endPredecessor(l)
	}
}

// observe returns the lives that have ended.
func (n *Node) observe(waited map[view.Life]uint64) (ended []view.Life) {
	reports, now := n.Reports(), time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for l, term := range waited {
		if n.HasSaidFarewell(l) { // it grants nothing any more, although its witnesses may still confirm it
			ended = append(ended, l)
			continue
		}
		e := n.endings[l].Observe(now, n.view.HaveLeft(term, reports) && n.IsGone(l, term))
		n.endings[l] = e
		if e.HasEnded(now) {
			ended = append(ended, l)
		}
	}
	return ended
}

// endPredecessor has the owners that wait for a life decide without it, once they have heard the members.
func (ps partitions) endPredecessor(l view.Life) {
	for x := range ps.each {
		if x.replica.Lacks(l) && !x.salvages() && !x.mustHear() {
			x.step(replica.Event{Kind: replica.Ended, From: l}, nil)
		}
	}
}
