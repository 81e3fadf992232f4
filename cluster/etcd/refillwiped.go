package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// ErrNotWiped says that etcd has what it had: there is nothing to restore.
var ErrNotWiped = errors.New("etcd has what it had")

// Restore writes what this node knows into an etcd that has lost it: the parameters, the
// incarnations of the members of v, which is the newest view, the rules and the tokens as stored, unless they
// are nil, and v itself under a number above all that were seen, which it returns. All
// nodes believe etcd again then. When dry it only looks.
//
// It returns ErrNotWiped while etcd is believed, and ErrOtherCluster if another cluster was founded there,
// which has to be removed first.
func (r *Registry) Restore(ctx context.Context, v *view.View, rules, tokens []byte, dry bool) (number uint64, err error) {
	if number, err = r.restore(ctx, v, rules, tokens, dry); err != nil {
		return 0, fmt.Errorf("restoring cluster %q: %w", r.cluster, err)
	}
	return number, nil
}

func (r *Registry) restore(ctx context.Context, v *view.View, rules, tokens []byte, dry bool) (uint64, error) {
	r.mu.Lock()
	params, seen := r.params, r.view
	r.mu.Unlock()
	if !seen.wiped || params == nil {
		return 0, ErrNotWiped
	}
	now, err := r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{
		clientv3.OpGet(r.keys.params), clientv3.OpGet(r.keys.view), clientv3.OpGet(r.keys.rules), clientv3.OpGet(r.keys.tokens),
	}})
	if err != nil {
		return 0, err
	}
	if kv := first(now, 0); kv != nil && !bytes.Equal(kv.Value, params) {
		return 0, fmt.Errorf("%w: stop its nodes, and delete all keys under %s", ErrOtherCluster, r.keys.root)
	}
	number := max(v.Number, seen.number) + 1
	if kv := first(now, 1); kv != nil {
		if stored, err := view.Unmarshal(kv.Value); err == nil {
			number = max(number, stored.Number+1)
		}
	}
	if dry {
		return number, nil
	}
	for _, m := range v.Members {
		if _, err := r.raise(ctx, r.keys.incarnations+m.ID, max(m.Incarnation, 1)-1); err != nil {
			return 0, err
		}
	}
	return number, r.rewrite(ctx, now, view.Restored(v, number), rules, tokens)
}

// rewrite stores view, rules, tokens and the parameters over what etcd had when it was asked.
func (r *Registry) rewrite(ctx context.Context, had *clientv3.TxnResponse, v *view.View, rules, tokens []byte) error {
	encoded, err := view.Marshal(v)
	if err != nil {
		return err
	}
	values := []struct {
		key   string
		value []byte
	}{{r.keys.params, r.Params()}, {r.keys.view, encoded}, {r.keys.rules, rules}, {r.keys.tokens, tokens}}
	var t transaction
	for i, v := range values {
		revision := int64(0)
		if kv := first(had, i); kv != nil {
			revision = kv.ModRevision
		}
		t.when = append(t.when, unchanged(v.key, revision))
		if v.value != nil {
			t.then = append(t.then, clientv3.OpPut(v.key, string(v.value)))
		}
	}
	resp, err := r.txn(ctx, callTimeout, t)
	if err == nil && !resp.Succeeded {
		err = cluster.ErrViewChanged
	}
	return err
}
