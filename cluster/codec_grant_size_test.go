package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// TestGrantsFitInMessages packs grants of the longest logs that there are.
func TestGrantsFitInMessages(t *testing.T) {
	const (
		apart = 50 * time.Minute
		most  = 256 << 10 // api.MaxMessage
	)
	limit := algorithms.Limit{Algorithm: algorithms.SlidingWindowLog, Limit: algorithms.MaxLog, Window: int64(365 * 24 * time.Hour)}
	var long algorithms.Long
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	for range algorithms.MaxLog {
		now += int64(apart)
		long.Step(&limit, now, 1, true)
	}
	grants := make([]shard.Grant, 10)
	for i := range grants {
		grants[i] = shard.Grant{Key: ownershipKey(i), Limit: limit, Long: &long}
	}
	for i := range 3 * maxGrantBatch {
		grants = append(grants, grantOf(i, 1))
	}
	packed := 0
	for rest := grants; len(rest) > 0; {
		encoded, n := packGrants(rest)
		if len(encoded) > most {
			t.Fatalf("%d grants take %d bytes, a message %d", n, len(encoded), most)
		}
		got, err := parseGrants(encoded)
		if err != nil || len(got) != n || n == 0 || got[0].Key != rest[0].Key {
			t.Fatalf("%d grants came of %d: %v", len(got), n, err)
		}
		rest, packed = rest[n:], packed+n
	}
	if packed != len(grants) {
		t.Errorf("%d of %d", packed, len(grants))
	}
}

// grantOf returns a grant of tokens of the i-th key.
func grantOf(i int, tokens int64) shard.Grant {
	now := time.Now().UnixNano()
	return shard.Grant{Key: ownershipKey(i), Limit: ownershipLimit, State: algorithms.Charge(&ownershipLimit, algorithms.State{}, now, now, tokens)}
}
