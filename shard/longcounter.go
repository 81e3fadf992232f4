package shard

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// DefaultMaxLongBytes is how much memory counters of long algorithms may take,
// unless configured otherwise.
const DefaultMaxLongBytes = 256 << 20

// longOverhead is about the memory of a longEntry and its place in the map, without the counter's own
// bytes.
const longOverhead = 192

// longEntry is one counter of a long algorithm. They are in a map of their own: they are few, and the other
// counters should not pay for them.
type longEntry struct {
	usage
	key     ring.Key
	counter algorithms.Long
	bytes   int    // counted in Shard.longBytes
	marks   uint8  // the followers in whose lists it is, as in a slot
	gone    bool   // deleted
	round   uint32 // of copied, when the last record of it came

	level          uint8 // the list that it is in, see levels
	previous, next *longEntry
}

// stepLongLocked decides t, and counts it if it takes something. A give-back is counted later, because
// nothing could undo it: see giveBackLongLocked. It reports whether the counter existed, and whether it has
// changed.
func (s *Shard) stepLongLocked(p *partition, t *Take, now int64) (found, changed bool) {
	e := p.long[t.Key]
	if found = e != nil; !found {
		var none algorithms.Long
		t.Decision = none.Step(&t.Limit, now, t.Cost, false)
		if !t.changes(false) {
			return false, false
		}
		e = s.addLongLocked(p, t.Key)
	}
	t.Decision = e.counter.Step(&t.Limit, now, t.Cost, t.Cost > 0)
	if changed = t.Decision.Allowed && t.Cost > 0; changed {
		e.usage = usageOf(t)
	}
	s.weighLongLocked(e)
	return found, changed
}

// giveBackLongLocked counts the give-backs to long counters of a group whose takes stay. The group's other
// takes were decided without them.
func (s *Shard) giveBackLongLocked(g *Group, now int64) {
	for i := range g.Takes {
		t := &g.Takes[i]
		if e := s.partition(t.Key).long[t.Key]; t.Cost < 0 && t.Limit.Algorithm.Long() && e != nil {
			t.Decision = e.counter.Step(&t.Limit, now, t.Cost, true)
			e.usage = usageOf(t)
			s.weighLongLocked(e)
			s.listLongLocked(s.partition(t.Key), e, false)
		}
	}
}

// undoLongLocked takes back what a step has counted at this same instant.
func (s *Shard) undoLongLocked(p *partition, u *undo, t *Take, now int64) {
	if !u.found {
		s.dropLongLocked(p, p.long[t.Key])
		return
	}
	e := p.long[t.Key]
	e.counter.Return(&t.Limit, now, t.Decision.At, t.Cost)
	e.usage = u.long
	s.weighLongLocked(e)
}

// lookLongLocked returns the decision that t would get, and counts nothing.
func (s *Shard) lookLongLocked(p *partition, t *Take, now int64) algorithms.Decision {
	e := p.long[t.Key]
	if e == nil {
		var none algorithms.Long
		return none.Step(&t.Limit, now, 0, false)
	}
	defer s.weighLongLocked(e)
	return e.counter.Step(&t.Limit, now, 0, false)
}

// returnLongLocked undoes a take, as returnLocked does.
func (s *Shard) returnLongLocked(p *partition, t *Take, now int64) {
	e := p.long[t.Key]
	if e == nil {
		return
	}
	if t.Cost >= 0 {
		e.counter.Return(&t.Limit, now, t.Decision.At, t.Cost)
	} else {
		d := e.counter.Step(&t.Limit, now, -t.Cost, true)
		e.expires = max(e.expires, seconds(d.ResetAt))
	}
	s.weighLongLocked(e)
	s.listLongLocked(p, e, false)
}

// addLongLocked adds a counter, without making room for it.
func (s *Shard) addLongLocked(p *partition, key ring.Key) *longEntry {
	if p.long == nil {
		p.long = make(map[ring.Key]*longEntry)
	}
	e := &longEntry{key: key, bytes: longOverhead}
	p.long[key] = e
	s.levelsOf(key).push(e)
	s.longBytes.Add(longOverhead)
	s.counters.Add(1)
	return e
}

func (s *Shard) deleteLongLocked(p *partition, e *longEntry) {
	s.listLongLocked(p, e, false)
	s.dropLongLocked(p, e)
}

// dropLongLocked deletes a counter without listing it for followers.
func (s *Shard) dropLongLocked(p *partition, e *longEntry) {
	s.longBytes.Add(-int64(e.bytes))
	delete(p.long, e.key)
	e.gone = true
	s.levelsOf(e.key).remove(e)
	s.counters.Add(-1)
}

// weighLongLocked updates the size of e, which even a look may change, and its place among those to evict.
// It follows every change of e.usage.
func (s *Shard) weighLongLocked(e *longEntry) {
	now := longOverhead + e.counter.Bytes()
	s.longBytes.Add(int64(now - e.bytes))
	e.bytes = now
	s.levelsOf(e.key).move(e)
}
