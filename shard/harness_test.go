package shard

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/ring"
)

// This is the harness of the package's tests: shards that end with their test, limits by the hour, keys, and ask,
// which takes from one counter.

// TestMain has rapid draw 30 examples in the short form instead of 100. The flag -rapid.checks says otherwise.
func TestMain(m *testing.M) {
	if !testform.AllTests() {
		if err := flag.Set("rapid.checks", "30"); err != nil {
			panic(err)
		}
	}
	m.Run()
}

// newShard returns a Shard with memory for all that tests count.
func newShard(t testing.TB) *Shard { return newShardOf(t, Config{Partitions: 1021, MaxBytes: 1 << 30}) }

// newSmallShard returns a Shard that has memory for smallest counters.
func newSmallShard(t testing.TB) *Shard {
	return newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1)})
}

const smallest = (pageSlots - spareSlots) * fullNum / fullDen

func newShardOf(t testing.TB, c Config) *Shard {
	c.Metrics = prometheus.NewRegistry()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func perHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: limit, Window: int64(time.Hour)}
}

func logPerHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.SlidingWindowLog, Limit: limit, Window: int64(time.Hour)}
}

func slidingBucketsPerHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.SlidingWindowBuckets, Limit: limit, Window: int64(time.Hour)}
}

func key(name string, i int) ring.Key { return ring.Hasher{}.Key(fmt.Appendf(nil, "%s/%d", name, i)) }

// ask decides one group of one take.
func ask(s *Shard, k ring.Key, l algorithms.Limit, cost int64) algorithms.Decision {
	g := []Group{{Takes: []Take{{Key: k, Limit: l, Cost: cost}}}}
	s.Decide(g)
	return g[0].Takes[0].Decision
}
