package node

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/weirlimit/weir/cluster"
)

// enter asks for a place in the view once members answer, unless this node's clock is too far from theirs. It may be seen only then that there
// are any, so it is compared until this node is one of them.
func (n *node) enter(ctx, failed context.Context) error {
	if !n.await(ctx, failed, 0, n.seen.Load) {
		return nil
	}
	n.await(ctx, failed, clockPatience, func() bool { return len(n.owners.Clocks()) >= n.othersInView() })
	if err := n.refuseClock(0); err != nil || ctx.Err() != nil {
		return err
	}
	if n.awaitMembers(ctx, failed); ctx.Err() != nil || failed.Err() != nil {
		return nil
	}
	n.announce(func(self *cluster.Node) {
		if self.State == cluster.Joining {
			self.State = cluster.Ready
		}
	})
	var err error
	n.await(ctx, failed, 0, func() bool {
		err = n.refuseClock(n.othersInView())
		return n.isMember() || err != nil
	})
	if n.isMember() {
		return nil // health says it
	}
	return err
}

// othersInView returns how many members there are but this node.
func (n *node) othersInView() (others int) {
	for _, m := range n.membership.Latest().Routing.Present() {
		if m.ID != n.opts.ID {
			others++
		}
	}
	return others
}

// unheard returns the other members, registered in etcd, that have not answered this node; nil if enough of them have: all of one or two, else more
// than half. A node that was a member before its restart is one again whether they answer or not: it has been reached.
func (n *node) unheard() (unheard []cluster.Member) {
	latest := n.membership.Latest()
	if latest.Routing.IsMember(n.opts.ID) {
		return nil
	}
	registered := make(map[string]bool)
	for _, other := range latest.Nodes {
		registered[other.ID] = true
	}
	clocks, others := make(map[string]bool), 0
	for _, d := range n.owners.Clocks() {
		clocks[d.ID] = true
	}
	for _, m := range latest.Routing.Present() {
		if !registered[m.ID] {
			continue
		}
		if others++; !clocks[m.ID] {
			unheard = append(unheard, m)
		}
	}
	if others > 2 && 2*len(unheard) < others {
		return nil
	}
	return unheard
}

// awaitMembers waits until enough members answer this node: else it would become one that forwards in vain.
func (n *node) awaitMembers(ctx, failed context.Context) {
	heard := func() bool { return len(n.unheard()) == 0 }
	if n.await(ctx, failed, joinPatience, heard) || ctx.Err() != nil || failed.Err() != nil {
		return
	}
	unheard := n.unheard()
	who := make([]string, len(unheard))
	var asked sync.WaitGroup
	for i, m := range unheard {
		asked.Go(func() {
			why := "it answers now"
			if err := n.knock(ctx, n.greeter, m); err != nil {
				why = err.Error()
			}
			who[i] = fmt.Sprintf("%s at %s (%s)", m.ID, m.Address, why)
		})
	}
	asked.Wait()
	n.log.Warn("not joining before members answer this node; look at their --advertise, at what is between the nodes, and at --tls-ca", "id", n.opts.ID, "members", strings.Join(who, ", "))
	n.await(ctx, failed, 0, heard)
}
