package shard

import (
	"math"
	"time"

	"github.com/weirlimit/weir/ring"
)

// Save appends to buf records of the counters of partition p that still matter after outlive, and returns how
// many there are. Apply lays them down in a partition without counters. Changes do not wait for it for longer
// than a step takes: each counter is as it was at some instant in the call, not all at the same one. The
// records end with the clock, also if there are no counters. Provisional grants and tokens on lease are not in
// them.
func (s *Shard) Save(p uint32, outlive time.Duration, buf []byte) (records []byte, counters int) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	after := over(s.now() + int64(outlive))
	for from, more := uint64(0), true; more; x.yieldLock() {
		var n int
		buf, from, n = s.saveSlotsLocked(x, from, after, buf)
		counters += n
		more = from != 0
	}
	var keys []ring.Key // few, see longEntry
	for key, e := range x.long {
		if e.expires > after {
			keys = append(keys, key)
		}
	}
	for begin, i := len(buf), 0; i < len(keys); i++ {
		if e := x.long[keys[i]]; e != nil {
			buf = appendLong(buf, e)
			counters++
		}
		if len(buf)-begin >= changesStepLong {
			x.yieldLock()
			begin = len(buf)
		}
	}
	return appendClock(buf, x), counters
}

// saveSlotsLocked appends a range of the counters from a high half of a key on that expire later than after. It
// returns the high half to continue with, 0 at the end, and the number of counters.
func (s *Shard) saveSlotsLocked(p *partition, from uint64, after uint32, b []byte) (records []byte, next uint64, n int) {
	head := len(b)
	b = appendRange(b)
	to := s.visitLocked(p, from, func(e *slot) {
		if e.expires > after && n < math.MaxUint16 {
			b = appendSlot(b, e)
			n++
		}
	})
	if n == 0 {
		return b[:head], to + 1, 0
	}
	setRange(b[head:], from, to, n)
	return b, to + 1, n
}

// Reserve makes room in partition p, which must be empty, for about as many counters as records of that length have, as far as there is
// memory. Without it, records in the order of the keys fill one end of a table that grows, where they are in each other's way.
func (s *Shard) Reserve(p uint32, length int) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	slots := length/slotBytes*fullDen/fullNum + spareSlots
	if pages := (slots + pageSlots - 1) / pageSlots; x.table.n == 0 && pages > x.table.reserved {
		x.table.begin(s.arena, pages)
	}
}
