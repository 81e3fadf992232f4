package etcd

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"
)

// Open connects to etcd. If no endpoint answers it fails after Config.Wait, or when ctx ends; but if
// something is known from an earlier run, it waits for a second and goes on without, as
// Reachable tells.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	where := strings.Join(cfg.Endpoints, ", ")
	client, err := dial(&cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", where, err)
	}
	r := &Registry{
		cluster:   cfg.Cluster,
		ttl:       cfg.LeaseTTL,
		keys:      keysOf(cfg.Cluster),
		log:       cfg.Logger,
		client:    client,
		where:     where,
		known:     cfg.Known,
		announced: make(chan struct{}, 1),
	}
	patience := cmp.Or(cfg.Wait, DefaultWait)
	if r.known != nil {
		patience = knownTimeout
		r.params, r.view.number = r.known.Params, r.known.View.Number
	}
	silent := r.awaitFirst(ctx, patience)
	if silent != nil && (r.known == nil || ctx.Err() != nil) {
		client.Close()
		return nil, fmt.Errorf("etcd at %s: %w", where, silent)
	}
	if r.metrics, err = newMetrics(cfg.Metrics); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd: registering metrics: %w", err)
	}
	r.reachability = newReachability(r.log, r.metrics)
	if silent != nil {
		r.reachability.unanswered(fmt.Errorf("etcd at %s: %w", where, silent))
	}
	return r, nil
}

// awaitFirst waits for the first answer of etcd, and tells that it waits. It returns why there is none.
func (r *Registry) awaitFirst(ctx context.Context, patience time.Duration) error {
	told := time.AfterFunc(tellAfter, func() {
		r.log.Warn("waiting for etcd, which does not answer", "etcd", r.where, "longest", patience.String())
	})
	defer told.Stop()
	return awaitAnswer(ctx, r.client, r.keys.params, patience)
}
