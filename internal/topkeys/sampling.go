package topkeys

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Outcomes is how many outcomes a Pace draws from.
const Outcomes = 4

// Pace draws the events of one rule that are recorded, of each outcome for itself: all of them if they are few, else a
// sample whose size does not grow. The gaps between drawn events are geometric, so that each event is drawn with the
// same probability, for each key. All methods are safe for concurrent use.
type Pace struct {
	group *Group

	mu      sync.Mutex
	strides [Outcomes]stride // guarded by mu
}

// stride is how the events of one outcome are drawn.
type stride struct {
	shift   uint8         // one of 1<<shift is drawn
	drawn   int           // since
	since   time.Duration // when shift was chosen
	counted uint64        // how many events there were by then
}

// NewPace returns a Pace that draws all events at first.
func (g *Group) NewPace() *Pace { return &Pace{group: g} }

// RenewEvery is how long a gap is in force: events may have become rare since it was chosen.
const RenewEvery = time.Second

// Lock makes one caller draw at a time.
func (p *Pace) Lock() { p.mu.Lock() }

// Unlock ends Lock.
func (p *Pace) Unlock() { p.mu.Unlock() }

// Renew takes the number of events of an outcome so far. It chooses the gap again, and returns the number of the next
// event that is drawn. The caller holds the lock.
func (p *Pace) Renew(outcome int, events uint64) (next uint64) {
	s, now := &p.strides[outcome], p.group.r.now()
	p.choose(s, events, now)
	return events + gap(s.shift)
}

// Draw records e, the event of that number, with the shift by which it was drawn, and returns the number of the next
// event that is drawn. An event without a Source is not recorded. The caller holds the lock.
func (p *Pace) Draw(outcome int, number uint64, e Event) (next uint64) {
	s, now, b := &p.strides[outcome], p.group.r.now(), &p.group.r.budget
	if e.Source != nil {
		p.group.record(e, s.shift)
	}
	b.spend(now)
	if s.drawn++; s.drawn >= perRule || uint32(s.shift) < b.shift.Load() {
		p.choose(s, number, now)
	}
	return number + gap(s.shift)
}

// choose makes s one that draws perRule events a second, as many as there were since it was chosen last.
func (p *Pace) choose(s *stride, events uint64, now time.Duration) {
	elapsed := max(now-s.since, time.Millisecond)
	rate := float64(int64(events-s.counted)) / elapsed.Seconds() // below 0 if another call was ahead
	shift := int(p.group.r.budget.shift.Load())
	for rate > perRule && shift < maxShift {
		rate, shift = rate/2, shift+1
	}
	s.shift, s.drawn, s.since, s.counted = uint8(min(shift, maxShift)), 0, now, events
}

// gap returns how many events later the next one is drawn, if one of 1<<shift is.
func gap(shift uint8) uint64 {
	if shift == 0 {
		return 1
	}
	p := math.Ldexp(1, -int(shift))
	return 1 + uint64(min(math.Log(1-rand.Float64())/math.Log1p(-p), math.MaxInt32))
}

// Bounds of how many events are recorded in a second: of one rule and outcome, and of a node.
const (
	perRule = 512
	perNode = 8192
)

// budget makes draws rarer while a node records more than perNode events in a second.
type budget struct {
	shift atomic.Uint32
	spent atomic.Uint32 // in the second
	until atomic.Int64  // its end, as Recorder.now
}

const maxShift = 24 // of a draw, with that of the budget

// spend counts a recorded event.
func (b *budget) spend(now time.Duration) {
	if until := b.until.Load(); int64(now) >= until {
		if b.until.CompareAndSwap(until, int64(now+time.Second)) {
			if spent := b.spent.Swap(0); spent < perNode/4 {
				if s := b.shift.Load(); s > 0 {
					b.shift.CompareAndSwap(s, s-1)
				}
			}
		}
	}
	if b.spent.Add(1) >= perNode {
		if s := b.shift.Load(); s < maxShift/2 && b.shift.CompareAndSwap(s, s+1) {
			b.spent.Store(0)
		}
	}
}
