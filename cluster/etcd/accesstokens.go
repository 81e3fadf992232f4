package etcd

import (
	"context"
	"fmt"
)

// ReadAccessTokens is ReadRules for the access tokens of the cluster.
func (r *Registry) ReadAccessTokens(ctx context.Context) (value []byte, revision int64, err error) {
	if value, revision, err = r.read(ctx, r.keys.tokens); err != nil {
		err = fmt.Errorf("reading the access tokens of cluster %q: %w", r.cluster, err)
	}
	return value, revision, err
}

// SwapAccessTokens is SwapRules for the access tokens of the cluster.
func (r *Registry) SwapAccessTokens(ctx context.Context, value []byte, revision int64) (int64, error) {
	next, err := r.swap(ctx, r.keys.tokens, value, maxTokens, revision)
	if err != nil {
		return 0, fmt.Errorf("storing the access tokens of cluster %q: %w", r.cluster, err)
	}
	return next, nil
}
