package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
)

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

// counted returns the last incarnation that etcd has given this node before this start, 0 if it has kept none.
func (n *node) counted() uint64 {
	if found := n.state.Found(); found != nil {
		return found.Incarnation
	}
	return 0
}
