package etcd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// NextIncarnation counts one more start of the node with that id and returns its
// number, from 1, or above the last one that is known from an earlier run. No two calls
// return the same.
func (r *Registry) NextIncarnation(ctx context.Context, id string) (uint64, error) {
	if err := checkName("node", id, maxNodeID); err != nil {
		return 0, fmt.Errorf("counting starts: %w", err)
	}
	above := uint64(0)
	if r.known != nil {
		above = r.known.Incarnation
	}
	n, err := r.raise(ctx, r.keys.incarnations+id, above)
	if err != nil {
		return 0, fmt.Errorf("counting starts of node %q: %w", id, err)
	}
	return n, nil
}

// raise adds one to the number at key, or to above if that is more. The number stands in the
// value, not in etcd's own version of the key, so that it survives a copy to another etcd.
func (r *Registry) raise(ctx context.Context, key string, above uint64) (uint64, error) {
	var number uint64
	var revision int64 // of number
	for began := time.Now(); time.Since(began) < openTimeout; {
		next := max(number, above) + 1
		resp, err := r.txn(ctx, openTimeout, transaction{
			when:      []clientv3.Cmp{unchanged(key, revision)},
			then:      []clientv3.Op{clientv3.OpPut(key, strconv.FormatUint(next, 10))},
			otherwise: []clientv3.Op{clientv3.OpGet(key)},
		})
		if err != nil {
			return 0, err
		}
		if resp.Succeeded {
			return next, nil
		}
		number, revision = 0, 0
		if kv := first(resp, 0); kv != nil {
			revision = kv.ModRevision
			if number, err = strconv.ParseUint(string(kv.Value), 10, 63); err != nil {
				return 0, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return 0, fmt.Errorf("%s: others changed it for %v", key, openTimeout)
}
