package node

import (
	"context"
	"strings"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// ownAddressEvery is how often the only member tries to reach itself.
const ownAddressEvery = 10 * time.Second

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
	var who []string
	for _, m := range n.unheard() {
		who = append(who, m.ID+" at "+m.Address)
	}
	n.log.Warn("not joining before members answer this node; look at their --advertise, and at what is between the nodes", "id", n.opts.ID, "members", strings.Join(who, ", "))
	n.await(ctx, failed, 0, heard)
}

// watchOwnAddress has the only member of a cluster look whether a node answers at the address that it advertises, and whether that is itself. Once there
// are others they look.
func (n *node) watchOwnAddress(ctx context.Context) {
	tick := time.NewTicker(ownAddressEvery)
	defer tick.Stop()
	n.await(ctx, ctx, 0, n.isMember)
	for ctx.Err() == nil {
		n.lookAtOwnAddress(ctx)
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

func (n *node) lookAtOwnAddress(ctx context.Context) {
	var err error
	if len(n.View().Present()) == 1 && n.isMember() {
		_, err = n.greeter.Knock(ctx, n.dial, cluster.Member{ID: n.opts.ID, Address: n.opts.Advertise, Incarnation: n.Self().Incarnation})
	}
	if err == nil || ctx.Err() != nil {
		n.ownAddress.Store(nil)
		return
	}
	if n.ownAddress.Swap(&err) == nil {
		n.log.Warn("this node does not answer at the address that it advertises: others cannot join if they do not reach it there either; look at --advertise",
			"advertise", n.opts.Advertise, "error", err)
	}
}
