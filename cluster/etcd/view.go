package etcd

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// SwapView stores v if the stored one is still at revision; 0 means that there must be none. It returns
// an error that wraps cluster.ErrViewChanged if another node was faster, and also while etcd holds less
// than was seen before, see Status.Alarm. A view never gives way to one of a lower or equal number.
//
// After another error, such as a time-out, v may have been stored or not; the
// next call of onChange tells.
func (r *Registry) SwapView(ctx context.Context, v *view.View, revision int64) error {
	if err := r.swapView(ctx, v, revision); err != nil {
		return fmt.Errorf("storing view %d of cluster %q: %w", v.Number, r.cluster, err)
	}
	return nil
}

// ReadView reads the view that etcd has now, linearizably, nil if there is none.
func (r *Registry) ReadView(ctx context.Context) (*view.View, error) {
	resp, err := r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{clientv3.OpGet(r.keys.view)}})
	if err != nil {
		return nil, err
	}
	kv := first(resp, 0)
	if kv == nil {
		return nil, nil
	}
	return view.Unmarshal(kv.Value)
}

func (r *Registry) swapView(ctx context.Context, v *view.View, revision int64) error {
	value, err := view.Marshal(v)
	if err != nil {
		return err
	}
	r.mu.Lock()
	params, seen := r.params, r.view
	r.mu.Unlock()
	if seen.wiped {
		return fmt.Errorf("%w: %s", cluster.ErrViewChanged, seen.alarm)
	}
	resp, err := r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{clientv3.OpGet(r.keys.view)}})
	if err != nil {
		return err
	}
	if err := mayReplace(first(resp, 0), revision, v.Number, seen.number); err != nil {
		return err
	}
	when := []clientv3.Cmp{unchanged(r.keys.view, revision)}
	if params != nil {
		// Not into an etcd that was wiped a moment ago.
		when = append(when, clientv3.Compare(clientv3.Value(r.keys.params), "=", string(params)))
	}
	resp, err = r.txn(ctx, callTimeout, transaction{
		when: when,
		then: []clientv3.Op{clientv3.OpPut(r.keys.view, string(value))},
	})
	if err == nil && !resp.Succeeded {
		err = cluster.ErrViewChanged
	}
	return err
}

// mayReplace decides whether a view of that number may replace stored, which is nil if there is none, by a
// node that has seen views up to number seen.
func mayReplace(stored *keyValue, revision int64, number, seen uint64) error {
	switch {
	case stored == nil && revision != 0, stored != nil && stored.ModRevision != revision:
		return cluster.ErrViewChanged
	case number <= seen:
		return fmt.Errorf("%w: view %d has been seen", cluster.ErrViewChanged, seen)
	case stored == nil && seen > 0:
		return fmt.Errorf("%w: etcd has lost view %d", cluster.ErrViewChanged, seen)
	case stored == nil:
		return nil
	}
	old, err := view.Unmarshal(stored.Value)
	if err == nil {
		if number <= old.Number {
			return fmt.Errorf("the stored view has number %d", old.Number)
		}
		return nil
	}
	if isOtherVersion(err) {
		return fmt.Errorf("the stored view is not replaced: %w", err)
	}
	// A damaged view may only be repaired by a node that knows the one before; a newcomer cannot know how
	// high the numbers have been.
	if seen == 0 {
		return fmt.Errorf("the stored view is damaged: %w", err)
	}
	var damaged struct{ Number uint64 }
	if json.Unmarshal(stored.Value, &damaged) == nil && number <= damaged.Number {
		return fmt.Errorf("the stored view is damaged and has number %d", damaged.Number)
	}
	return nil
}
