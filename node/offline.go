package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// enlistEvery is how often a node that has started without etcd tries to register.
const enlistEvery = 250 * time.Millisecond

// openState takes the data directory, and reads what an earlier run has left there.
func (n *node) openState(context.Context) (err error) {
	if n.state, err = etcd.OpenState(n.opts.DataDir, n.opts.Cluster, n.opts.ID, n.log); err == nil {
		n.closers = append(n.closers, n.state.Close)
	}
	return err
}

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

func (n *node) otherCluster(err error) error {
	return fmt.Errorf("%w; is --etcd right? If it is, give this node another --data-dir than %s", err, n.opts.DataDir)
}

// enlist counts this start in etcd, and returns the cluster's parameters.
func (n *node) enlist(ctx context.Context) (params cluster.Params, incarnation uint64, err error) {
	want := cluster.Params{Format: cluster.Format}
	founding := n.state.Founding()
	if known := n.state.Found(); known != nil {
		want, err = etcd.ParseParams(known.Params)
	} else if founding != nil {
		want, err = etcd.ParseParams(founding)
	}
	if err != nil {
		return params, 0, err
	}
	params, err = n.registry.Bootstrap(ctx, want)
	if _, other := errors.AsType[*etcd.OtherParamsError](err); other && founding != nil {
		err = fmt.Errorf("%w; %s has counters of another cluster, which count only in a cluster that this node founds: "+
			"remove that directory, and import them with a --cluster of which etcd knows nothing", err, n.opts.DataDir)
	}
	if err != nil {
		return params, 0, err
	}
	if err := n.refuseTaken(ctx, params); err != nil {
		return params, 0, err
	}
	if incarnation, err = n.registry.NextIncarnation(ctx, n.opts.ID); err != nil {
		return params, 0, err
	}
	n.state.Keep(func(k *etcd.Known) { k.Params, k.Incarnation = n.registry.Params(), incarnation })
	return params, incarnation, nil
}

// identify returns the cluster's parameters and this node's incarnation, which is 0 if etcd
// is unreachable.
func (n *node) identify(ctx context.Context) (params cluster.Params, incarnation uint64, err error) {
	if n.offline.Load() {
		params, err = etcd.ParseParams(n.state.Found().Params)
		return params, 0, err
	}
	return n.enlist(ctx)
}

// keepRules has the rules kept as they are in force.
func (n *node) keepRules(*rules.Set) {
	if n.store != nil {
		stored := n.store.Stored()
		n.state.Keep(func(k *etcd.Known) { k.Rules = stored })
	}
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

// ImportView implements api.Status.
func (n *node) ImportView(ctx context.Context, dryRun bool) (*weirv1.ImportViewResponse, error) {
	v, alarm := n.owners.View(), n.registry.Status().Alarm
	if v == nil {
		return nil, api.ErrNothingLost
	}
	resp := &weirv1.ImportViewResponse{Cluster: n.opts.Cluster, Reason: alarm}
	var stored []byte
	if n.store != nil {
		state := n.store.State()
		stored, resp.StoreRevision = n.store.Stored(), state.Revision
	}
	number, err := n.registry.Restore(ctx, v, stored, n.clusterTokens.stored(), dryRun)
	if errors.Is(err, etcd.ErrNotWiped) {
		return nil, api.ErrNothingLost
	}
	if err != nil {
		return nil, err
	}
	resp.View = number
	for _, l := range v.Lives() {
		resp.Members = append(resp.Members, l.ID)
	}
	if !dryRun {
		n.log.Warn("view, rules and access tokens were written to etcd, which had lost them", "cluster", n.opts.Cluster, "reason", alarm, "view", number, "rules", resp.StoreRevision)
	}
	return resp, nil
}
