package algorithms

import (
	"math"
	"slices"
)

// Two logs unite to the log of both, which is exact. It is bounded as each of them is:
//
//   - Beyond as many entries as a Long holds, the oldest count as if they were of the
//     tick of the next. Each entry is a token at least, and no limit above that many, so
//     nothing is allowed while the next counts; only a caller that gives back what others have
//     taken may find less room than an unbounded log had.
//   - Beyond 1<<32 - 1 tokens, the oldest are gone: they are above every limit.

// maxUsed is how many tokens a Long holds.
const maxUsed = math.MaxUint32

// Merge adds the tokens of y, a disjoint count of the same counter, as the function
// Merge does. Nothing but the passing of time has an effect on y, which must not be x.
func (x *Long) Merge(l *Limit, y *Long, now int64) {
	k := clockOf(l)
	now = max(now, x.latest, y.latest)
	x.roll(k, now)
	y.roll(k, now)
	both := Long{latest: now, buckets: k.buckets}
	both.resize(min(x.count+y.count, k.most()))
	for i, j := 0, 0; i < x.count || j < y.count; {
		if j == y.count || i < x.count && x.at(i).tick <= y.at(j).tick {
			both.force(k, x.at(i).tick, x.tokens(i))
			i++
		} else {
			both.force(k, y.at(j).tick, y.tokens(j))
			j++
		}
	}
	*x = both
}

// Clone returns a counter that is as x, and shares nothing with it.
func (x *Long) Clone() *Long {
	y := *x
	y.ring = slices.Clone(x.ring)
	return &y
}

// Charge counts tokens that were taken at an instant, as the function Charge does.
func (x *Long) Charge(l *Limit, now, takenAt, tokens int64) {
	k := clockOf(l)
	current := x.roll(k, max(now, takenAt))
	switch tick := k.tick(takenAt); {
	case tokens == 0 || tick <= current-k.span():
	case x.count == 0 || tick >= x.at(x.count-1).tick:
		x.force(k, tick, tokens)
	default:
		one := Long{ring: []entry{{tick, tokens}}, count: 1, latest: x.latest, buckets: x.buckets}
		x.Merge(l, &one, x.latest)
	}
}

// force appends tokens of the last tick or a later one, regardless of room.
func (x *Long) force(k clock, tick, tokens int64) {
	if x.count == k.most() && x.at(x.count-1).tick < tick {
		x.drop() // and not its tokens, which are now the next one's
	}
	x.add(tick, tokens, int64(k.most()))
	for x.before += max(0, x.used()-maxUsed); x.at(0).total-x.before <= 0; {
		x.drop()
	}
}

// drop removes the oldest entry, but not what it says of x.before.
func (x *Long) drop() {
	x.head = x.index(1)
	x.count--
}

// tokens returns how many the i-th entry from the oldest on has.
func (x *Long) tokens(i int) int64 {
	if i == 0 {
		return x.at(0).total - x.before
	}
	return x.at(i).total - x.at(i-1).total
}

// most returns how many entries there are at the most, for any limit.
func (k clock) most() int {
	if k.buckets == 0 {
		return MaxLog
	}
	return int(k.span())
}
