package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster/view"
)

// Why etcd is not what it was.
var (
	// ErrWiped says that etcd has less than it had: nothing, or an older view.
	ErrWiped = errors.New("etcd was wiped or restored")
	// ErrOtherCluster says that it has another cluster of the same name.
	ErrOtherCluster = errors.New("etcd has another cluster of this name")
)

// Verify looks whether etcd has what is known of it from an earlier run, or more. Its error is
// ErrWiped or ErrOtherCluster, wrapped, or says why etcd does not answer.
func (r *Registry) Verify(ctx context.Context) error {
	resp, err := r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{
		clientv3.OpGet(r.keys.params), clientv3.OpGet(r.keys.view),
	}})
	if err != nil {
		return err
	}
	params, stored := first(resp, 0), first(resp, 1)
	switch {
	case params == nil:
		return fmt.Errorf("%w: it has lost the parameters of cluster %q", ErrWiped, r.cluster)
	case !bytes.Equal(params.Value, r.known.Params):
		return fmt.Errorf("%w: the parameters of %q there are not those that this node has kept", ErrOtherCluster, r.cluster)
	case stored == nil:
		return fmt.Errorf("%w: it has lost view %d", ErrWiped, r.known.View.Number)
	}
	v, err := view.Unmarshal(stored.Value)
	if err == nil && v.Number < r.known.View.Number { // a damaged one is replaced
		return fmt.Errorf("%w: it has view %d after view %d", ErrWiped, v.Number, r.known.View.Number)
	}
	return nil
}
