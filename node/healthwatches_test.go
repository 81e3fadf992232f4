package node

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthWatch is a watch of a client that waits for the next change until its context ends.
type healthWatch struct {
	healthpb.Health_WatchServer
	ctx context.Context
}

func (w healthWatch) Context() context.Context               { return w.ctx }
func (healthWatch) Send(*healthpb.HealthCheckResponse) error { return nil }

// A node has as many watches of its health as its bound says, and takes others when some have ended.
func TestHealthWatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &healthWatches{Server: health.NewServer()}
		watch := func(ctx context.Context) codes.Code {
			return status.Code(h.Watch(new(healthpb.HealthCheckRequest), healthWatch{ctx: ctx}))
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range maxHealthWatches {
			all.Go(func() {
				if code := watch(ctx); code != codes.Canceled {
					t.Errorf("a watch within the bound: %v", code)
				}
			})
		}
		synctest.Wait()
		if code := watch(ctx); code != codes.ResourceExhausted {
			t.Errorf("a watch beyond the bound: %v", code)
		}
		cancel()
		all.Wait()
		ended, end := context.WithCancel(t.Context())
		end()
		if code := watch(ended); code != codes.Canceled {
			t.Errorf("a watch after the others: %v", code)
		}
	})
}
