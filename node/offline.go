package node

import (
	"context"
	"errors"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
)

// enlistEvery is how often a node that has started without etcd tries to register.
const enlistEvery = 250 * time.Millisecond

// verify has the node start by what an earlier run has left, if etcd does not answer, or has
// less.
func (n *node) verify(ctx context.Context) error {
	known := n.state.Found()
	if known == nil {
		return nil
	}
	err := errors.New("etcd does not answer")
	if n.registry.Reachable() {
		err = n.registry.Verify(ctx)
	}
	switch {
	case errors.Is(err, etcd.ErrOtherCluster):
		return n.otherCluster(err)
	case err != nil && ctx.Err() == nil:
		n.offline.Store(true)
		n.log.Warn("starting without etcd from the stored view; to found a new cluster, remove the directory",
			"dir", n.opts.DataDir, "view", known.View.Number, "reason", err)
	}
	return ctx.Err()
}

// join registers a node that has started without etcd, once that has what it had.
func (n *node) join(ctx, failed context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(failed, cancel)()
	incarnation, err := n.awaitEnlisted(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	n.owners.Become(incarnation)
	n.announce(func(self *cluster.Node) {
		self.Incarnation = incarnation
		if self.State == cluster.Joining {
			self.State = cluster.Ready
		}
	})
	if n.await(ctx, failed, 0, n.isMember) {
		n.offline.Store(false)
		n.log.Info("registered in etcd after a start without it", "id", n.opts.ID, "incarnation", incarnation)
	}
	return nil
}

// awaitEnlisted tries to count this start until that succeeds or ctx ends. It gives up only where
// another node or cluster is in the way.
func (n *node) awaitEnlisted(ctx context.Context) (incarnation uint64, err error) {
	tick := time.NewTicker(enlistEvery)
	defer tick.Stop()
	for {
		if err = n.registry.Verify(ctx); err == nil {
			err = n.refuseClock(0)
		}
		if err == nil {
			_, incarnation, err = n.enlist(ctx)
		}
		switch {
		case err == nil:
			return incarnation, nil
		case errors.Is(err, etcd.ErrOtherCluster):
			return 0, n.otherCluster(err)
		case errors.Is(err, errTaken):
			return 0, err
		}
		n.log.Debug("registering in etcd has failed, and is tried again", "error", err)
		select {
		case <-ctx.Done():
			return 0, nil
		case <-tick.C:
		}
	}
}
