package cluster

import (
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Bounds of what is remembered of limits that are likely full.
const (
	fullSlots = 4 << 10         // of each one counter is remembered
	fullFor   = 5 * time.Minute // the most that a denial is remembered
	fullUnit  = 16 * time.Millisecond
)

// fullKeys remembers which counters have denied a take of a group that spans nodes, until they have room again. Such a
// group looks there first, and takes nothing elsewhere that it would have to give back. A mistake costs one more
// exchange. It is safe for concurrent use; what meets in one slot may be lost.
type fullKeys struct {
	started time.Time
	slots   [fullSlots]atomic.Uint64 // 32 bits of a key, and until when in units since started, above 0
}

func (f *fullKeys) slot(k ring.Key) *atomic.Uint64 { return &f.slots[k.Hi%fullSlots] }

// units returns an instant in units since started, rounded up.
func (f *fullKeys) units(at time.Time) uint64 {
	return uint64(uint32((at.Sub(f.started) + fullUnit - 1) / fullUnit))
}

// likely reports whether a take of k is likely denied.
func (f *fullKeys) likely(k ring.Key, now time.Time) bool {
	v := f.slot(k).Load()
	return v>>32 == k.Hi>>32 && v&(1<<32-1) > f.units(now)
}

// learn records a node's decision of t.
func (f *fullKeys) learn(t *shard.Take, now time.Time) {
	switch t.Source {
	case shard.Owner, shard.Relayed, shard.Provisional:
	default:
		return
	}
	slot := f.slot(t.Key)
	if t.Contended {
		return
	}
	if !t.Decision.Allowed && t.Cost > 0 {
		ends := fullFor
		if t.Decision.RetryAt != algorithms.Never {
			ends = min(ends, time.Duration(t.Decision.RetryAt-t.Decision.At))
		}
		slot.Store(t.Key.Hi>>32<<32 | f.units(now.Add(ends)))
		return
	}
	if v := slot.Load(); v != 0 && v>>32 == t.Key.Hi>>32 && t.Decision.Allowed {
		slot.CompareAndSwap(v, 0)
	}
}
