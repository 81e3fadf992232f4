package node

import (
	"context"
	"errors"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/cluster/etcd"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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
