package ownership

import (
	"context"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// meet keeps a peer for each other life that a view names. n.mu is held.
func (n *Node) meet(v *view.View) {
	if n.ctx != nil && n.ctx.Err() != nil {
		return
	}
	old, all := *n.byLife.Load(), make(map[view.Life]*peer, len(v.Members))
	for _, m := range v.Members {
		if m.Life == n.lease.Self {
			continue
		}
		c := old[m.Life]
		if c == nil {
			c = &peer{life: m.Life, due: make(chan struct{}, 1), soon: make(chan struct{}, 1), final: make(chan struct{})}
		}
		all[m.Life] = c
		if n.ctx != nil && c.stop == nil {
			(&sender{peer: c, node: n}).start()
		}
	}
	n.byLife.Store(&all)
	for l, c := range old {
		if all[l] == nil {
			c.leave()
		}
	}
}

// start starts to serve the peer, until the node ends or the peer leaves. node.mu is held.
func (c *sender) start() {
	ctx, stop := context.WithCancel(c.node.ctx)
	c.stop = stop
	c.node.running.Go(func() { c.serve(ctx) })
}

// serve sends a peer what is due, until ctx ends.
func (c *sender) serve(ctx context.Context) {
	c.copies.due = time.NewTimer(feedEvery)
	defer c.copies.due.Stop()
	for {
		copies := false
		select {
		case <-ctx.Done():
			return
		case <-c.due:
			c.post(ctx)
			c.ask(ctx)
			c.askVersions(ctx)
		case <-c.soon:
		case <-c.copies.due.C:
			copies = true
		}
		c.pause(ctx, c.feed(ctx, copies))
	}
}
