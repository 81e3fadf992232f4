package etcd

import (
	"context"
	"fmt"
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
