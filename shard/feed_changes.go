package shard

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/ring"
)

// Bounds of the work for a follower under one lock.
const (
	changesStep     = 256     // slots visited, or keys looked up
	changesStepLong = 1 << 16 // bytes of counters of long algorithms, plus at most one counter
)

// Changes appends to buf records that follower f of partition p has not been given yet, and reports whether
// more are left. The records are true as of some instant in the call. It appends about most bytes, and at
// most one step more: 16 KiB, or one counter of a long algorithm. Without changes it appends nothing; for a
// sealed partition it always appends the clock. Only one goroutine at a time may call it for one follower.
//
// Once a sealed partition has no more, its follower was given every counter except expired ones, and for
// ToStandby except those that expire soon. All records must be given to Apply, in order.
func (s *Shard) Changes(p uint32, f Follower, buf []byte, most int) (records []byte, more bool) {
	x := &s.partitions[p]
	begin := len(buf)
	x.mu.Lock()
	defer x.mu.Unlock()
	for {
		if x.follows[f] == nil {
			return buf, false
		}
		buf = s.appendStepLocked(x, f, buf, most-(len(buf)-begin))
		if more = x.follows[f].left(); !more || len(buf)-begin >= most {
			break
		}
		x.yieldLock()
	}
	if len(buf) > begin || x.sealed {
		buf = appendClock(buf, x)
	}
	return buf, more
}

// appendStepLocked appends one step's records, of at most about most bytes.
func (s *Shard) appendStepLocked(p *partition, f Follower, b []byte, most int) []byte {
	switch x := p.follows[f]; x.nextKind() {
	case changed:
		n := min(len(x.list), changesStep, most/slotBytes+1)
		for keys := range slices.Chunk(x.list[:n], lookAhead) {
			for _, key := range keys {
				p.table.prefetch(s.arena, key.Hi)
			}
			for _, key := range keys {
				b = s.appendChangeLocked(p, f, b, key)
			}
		}
		x.list = x.list[:copy(x.list, x.list[n:])]
		return b
	case scanned:
		return s.scanLocked(p, f, b)
	case long:
		return x.appendLongs(f, b, min(most, changesStepLong))
	default:
		return b
	}
}

// appendChangeLocked appends the present state under key.
func (s *Shard) appendChangeLocked(p *partition, f Follower, b []byte, key ring.Key) []byte {
	e := p.table.find(s.arena, key)
	if e == nil {
		return appendGone(b, key)
	}
	e.share &^= 1 << f
	return appendSlot(append(b, tagSlot), e)
}

// scanLocked appends some of the slots ahead of follower f's scan, and advances the scan.
func (s *Shard) scanLocked(p *partition, f Follower, b []byte) []byte {
	x := p.follows[f]
	head := len(b)
	b = appendRange(b)
	n := 0
	to := s.visitLocked(p, x.next, func(e *slot) {
		e.share &^= 1 << f
		if e.expires > over(p.latest) {
			b = appendSlot(b, e)
			n++
		}
	})
	setRange(b[head:], x.next, to, n)
	x.passed(to)
	return b
}

// passed advances the scan past a key's high half.
func (x *backlog) passed(hi uint64) {
	again := x.wrapped
	if x.next = hi + 1; x.next == 0 {
		x.wrapped = true
	}
	if x.wrapped && (x.next >= x.end || again && x.next == 0) {
		x.scanning, x.next = false, 0
	}
}

// appendLongs appends about most bytes of counters of long algorithms.
func (x *backlog) appendLongs(f Follower, b []byte, most int) []byte {
	if x.beginLongs {
		b = append(b, tagBeginLongs)
		x.beginLongs, x.endLongs = false, true
	}
	for begin := len(b); len(x.longs) > 0 && len(b)-begin < most; {
		e := x.longs[0]
		x.longs[0], x.longs = nil, x.longs[1:]
		e.marks &^= 1 << f
		if e.gone {
			b = appendKey(append(b, tagLongGone), e.key)
		} else {
			b = appendLong(b, e)
		}
	}
	if len(x.longs) == 0 && x.endLongs {
		b = append(b, tagEndLongs)
		x.endLongs = false
	}
	return b
}

// visitLocked calls f for the slots from a high half of a key on, about changesStep of them, empty ones
// included. It returns the high half before which all were visited.
func (s *Shard) visitLocked(p *partition, from uint64, f func(e *slot)) (to uint64) {
	c := p.table.seek(s.arena, from)
	to = from
	for visited := 0; ; visited++ {
		if c.i >= c.r.end() {
			if !c.nextRun() {
				return math.MaxUint64
			}
			continue
		}
		e := c.r.slot(s.arena, c.i)
		next := ^e.hi // no key from here on is below
		if e.expires == 0 {
			next = c.least()
		}
		if visited >= changesStep && next > to {
			return next - 1
		}
		if e.expires != 0 {
			f(e)
			to = next
		}
		c.i++
	}
}
