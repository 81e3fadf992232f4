package ownership

import (
	"context"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// maxRequests bounds the partitions of one call that asks for final states.
const maxRequests = 1 << 14

// ask asks a peer for the final states that this node waits for.
func (c *peer) ask(ctx context.Context) {
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
