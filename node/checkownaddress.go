package node

import (
	"context"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// ownAddressEvery is how often the only member tries to reach itself.
const ownAddressEvery = 10 * time.Second

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
