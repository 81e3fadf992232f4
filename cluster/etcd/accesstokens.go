package etcd

import (
	"context"
	"fmt"
)

// ReadTokens is ReadRules for the tokens of the cluster.
func (r *Registry) ReadTokens(ctx context.Context) (value []byte, revision int64, err error) {
	if value, revision, err = r.read(ctx, r.keys.tokens); err != nil {
		err = fmt.Errorf("reading the tokens of cluster %q: %w", r.cluster, err)
	}
	return value, revision, err
}

// SwapTokens is SwapRules for the tokens of the cluster.
func (r *Registry) SwapTokens(ctx context.Context, value []byte, revision int64) (int64, error) {
	next, err := r.swap(ctx, r.keys.tokens, value, maxTokens, revision)
	if err != nil {
		return 0, fmt.Errorf("storing the tokens of cluster %q: %w", r.cluster, err)
	}
	return next, nil
}
