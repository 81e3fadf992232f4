package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
)

// Evict ends the lease under which a life of a node is registered, if it is: its key goes, and the node learns with its next renewal that etcd confirms it
// no more. If it lives it registers again. It is no error if another life of the node is registered, or none.
func (r *Registry) Evict(ctx context.Context, l cluster.Life) error {
	key := r.keys.nodes + l.ID
	resp, err := r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{clientv3.OpGet(key)}})
	if err != nil {
		return fmt.Errorf("reading %s: %w", key, err)
	}
	kv := first(resp, 0)
	if kv == nil || kv.Lease == 0 {
		return nil
	}
	if stored, err := parseNode(l.ID, kv.Value); err == nil && stored.Incarnation != l.Incarnation {
		return nil
	}
	err = r.call(ctx, callTimeout, func(ctx context.Context) error {
		_, err := r.client.Revoke(ctx, clientv3.LeaseID(kv.Lease))
		return err
	})
	if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("ending the lease of %s: %w", key, err)
	}
	return nil
}
