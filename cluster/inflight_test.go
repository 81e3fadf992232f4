package cluster

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/shard"
)

// Requests are sent, answered, given up and late in any order, also around the end of the
// ids. Each call that waits is found by the ids of its requests, once, and no other is.
func TestInflight(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		now := time.Unix(1, 0)
		var p inflight
		var model []waiting // those of p, each group on its own
		id := uint32(math.MaxUint32 - 500)
		for range 2000 {
			switch rnd.IntN(8) {
			default:
				a := &call{due: now.Add(time.Duration(rnd.IntN(50)))}
				groups := groupsOf(1+rnd.IntN(3), 1)
				if id > math.MaxUint32-maxPending && rnd.IntN(400) == 0 {
					id = 0 // as a conn does
				}
				p.add(waiting{call: a, first: id, groups: groups})
				for _, g := range groups {
					model = append(model, waiting{a, id, []*shard.Group{g}, nil})
					id++
				}
			case 3, 4, 5:
				if len(model) == 0 {
					continue
				}
				w := model[0]
				if a, _, _, err := p.next(w.first - 1); a != nil || err != nil {
					t.Fatalf("seed %d: no call waits for %d, but %v does, %v", seed, w.first-1, a, err)
				}
				if last := model[len(model)-1].first; last != w.first {
					if a, _, _, err := p.next(last); a != nil || err == nil {
						t.Fatalf("seed %d: %d is answered before %d", seed, last, w.first)
					}
				}
				a, g, _, err := p.next(w.first)
				if err != nil || a != w.call || g != w.groups[0] {
					t.Fatalf("seed %d: %d is answered to %p, %v, want %p", seed, w.first, a, err, w.call)
				}
				model = model[1:]
			case 6:
				if len(model) == 0 {
					continue
				}
				w := model[rnd.IntN(len(model))]
				var want []*shard.Group
				first := w.first
				for _, m := range model {
					if m.call == w.call {
						want = append(want, m.groups...)
					}
				}
				for slices.ContainsFunc(model, func(m waiting) bool { return m.call == w.call && m.first == first-1 }) {
					first--
				}
				if got := p.take(&call{}, first); got != nil {
					t.Fatalf("seed %d: another call takes %d groups", seed, len(got))
				}
				if got := p.take(w.call, first); !slices.Equal(got, want) {
					t.Fatalf("seed %d: %d groups are given up, not %d", seed, len(got), len(want))
				}
				model = slices.DeleteFunc(model, func(m waiting) bool { return m.call == w.call })
			case 7:
				now = now.Add(time.Duration(rnd.IntN(30)))
				due, next := p.takeDue(now)
				late := 0
				for _, w := range due {
					late += len(w.groups)
				}
				var want time.Time
				model = slices.DeleteFunc(model, func(m waiting) bool {
					if !m.call.due.After(now) {
						late--
						return true
					}
					if want.IsZero() || m.call.due.Before(want) {
						want = m.call.due
					}
					return false
				})
				if late != 0 || !next.Equal(want) {
					t.Fatalf("seed %d: %d groups too many are late, the next is at %v, not %v", seed, late, next, want)
				}
			}
			waiting := 0
			for _, w := range p.waiting() {
				waiting += len(w.groups)
			}
			if waiting != len(model) {
				t.Fatalf("seed %d: %d requests wait, not %d", seed, waiting, len(model))
			}
		}
	}
}
