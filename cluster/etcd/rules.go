package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// RulesKey returns where the rules stand in etcd.
func (r *Registry) RulesKey() string { return r.keys.rules }

// ReadRules returns the rules as they are stored now, and the revision at which
// to replace them: nil and 0 if there are none.
func (r *Registry) ReadRules(ctx context.Context) (value []byte, revision int64, err error) {
	if value, revision, err = r.read(ctx, r.keys.rules); err != nil {
		err = fmt.Errorf("reading the rules of cluster %q: %w", r.cluster, err)
	}
	return value, revision, err
}

// ReadTokens is ReadRules for the tokens of the cluster.
func (r *Registry) ReadTokens(ctx context.Context) (value []byte, revision int64, err error) {
	if value, revision, err = r.read(ctx, r.keys.tokens); err != nil {
		err = fmt.Errorf("reading the tokens of cluster %q: %w", r.cluster, err)
	}
	return value, revision, err
}

// read returns what stands under a key, and its revision.
func (r *Registry) read(ctx context.Context, key string) (value []byte, revision int64, err error) {
	resp, err := r.txn(ctx, callTimeout, transaction{then: []clientv3.Op{clientv3.OpGet(key)}})
	if err != nil {
		return nil, 0, err
	}
	if kv := first(resp, 0); kv != nil {
		return kv.Value, kv.ModRevision, nil
	}
	return nil, 0, nil
}

// SwapRules stores value, of 1 byte to 1 MiB, if the stored rules are still at revision; 0 means that there
// must be none. It returns their new revision, or 0 if another node was faster. After an error, such as a
// time-out, value may have been stored or not; the next call of onChange tells.
func (r *Registry) SwapRules(ctx context.Context, value []byte, revision int64) (int64, error) {
	next, err := r.swap(ctx, r.keys.rules, value, MaxRules, revision)
	if err != nil {
		return 0, fmt.Errorf("storing the rules of cluster %q: %w", r.cluster, err)
	}
	return next, nil
}

// SwapTokens is SwapRules for the tokens of the cluster.
func (r *Registry) SwapTokens(ctx context.Context, value []byte, revision int64) (int64, error) {
	next, err := r.swap(ctx, r.keys.tokens, value, maxTokens, revision)
	if err != nil {
		return 0, fmt.Errorf("storing the tokens of cluster %q: %w", r.cluster, err)
	}
	return next, nil
}

// swap stores value, of 1 to most bytes, under a key that is still at revision.
func (r *Registry) swap(ctx context.Context, key string, value []byte, most int, revision int64) (int64, error) {
	if n := len(value); n == 0 || n > most {
		return 0, fmt.Errorf("%d bytes are not 1 to %d", n, most)
	}
	r.mu.Lock()
	params, seen := r.params, r.view
	r.mu.Unlock()
	if seen.wiped {
		return 0, errors.New(seen.alarm)
	}
	when := []clientv3.Cmp{unchanged(key, revision)}
	if params != nil {
		// Not into an etcd that was wiped a moment ago.
		when = append(when, clientv3.Compare(clientv3.Value(r.keys.params), "=", string(params)))
	}
	resp, err := r.txn(ctx, callTimeout, transaction{
		when:      when,
		then:      []clientv3.Op{clientv3.OpPut(key, string(value))},
		otherwise: []clientv3.Op{clientv3.OpGet(r.keys.params)},
	})
	switch {
	case err != nil:
		return 0, err
	case resp.Succeeded:
		return resp.Header.Revision, nil
	}
	if kv := first(resp, 0); params != nil && (kv == nil || !bytes.Equal(kv.Value, params)) {
		return 0, errors.New("etcd was wiped: it has lost the parameters of this cluster")
	}
	return 0, nil
}
