package node

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// A node that is full says so, once a minute and in its health, until it is over.
func TestEvictionsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := shard.New(shard.Config{Partitions: 64, MaxBytes: minCounterMemory, Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		e := &evictions{count: s.Evicted, log: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go e.Run(ctx)
		ask := func(from, to uint64) {
			for i := from; i < to; i++ {
				s.Decide([]shard.Group{{Takes: []shard.Take{{Key: ring.NewHasher([ring.SecretSize]byte{}).Key([]byte{byte(i), byte(i >> 8), byte(i >> 16)}),
					Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 9, Window: int64(24 * time.Hour)}, Cost: 1}}}})
			}
		}
		minute := func() {
			<-time.After(evictionsEvery)
			synctest.Wait()
		}
		ask(0, 1000)
		minute()
		if e.problem() != "" || log.String() != "" {
			t.Fatalf("with room: %q, %s", e.problem(), log.String())
		}
		ask(1000, 400_000)
		if got := e.problem(); !strings.Contains(got, "counters in use were dropped") {
			t.Errorf("at once: %q", got)
		}
		minute()
		if got := strings.Count(log.String(), "level=WARN"); got != 1 || e.problem() == "" {
			t.Errorf("%d lines, %q:\n%s", got, e.problem(), log.String())
		}
		minute()
		if got := strings.Count(log.String(), "level=WARN"); got != 1 || e.problem() != "" {
			t.Errorf("when it is over: %d lines, %q:\n%s", got, e.problem(), log.String())
		}
	})
}
