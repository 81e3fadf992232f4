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

// The answer to a ping answers no request that waits.
func TestPongAnswersNoCheck(t *testing.T) {
	for _, last := range []uint32{0, math.MaxUint32 - maxPending, math.MaxUint32} {
		c := newConn(nil, DefaultAttemptTimeout)
		c.healthy.Store(true)
		c.breaker.healthy = true
		c.nextID = last
		a := &call{done: make(chan struct{}, 1)}
		a.left.Store(1)
		groups := []*shard.Group{{Takes: make([]shard.Take, 1)}, {Takes: make([]shard.Take, 1)}}
		first, err := c.enqueue(a, groups, nil)
		if err != nil {
			t.Fatal(err)
		}
		pong := appendAnswer([]byte{connVersion}, pingID, &shard.Group{Allowed: true}, false)
		if err := c.deliver(pong); err != nil || c.waiting != 2 {
			t.Errorf("after id %d: %v, %d of 2 requests wait", last, err, c.waiting)
		}
		answers := []byte{connVersion}
		for i, g := range groups {
			answers = appendAnswer(answers, first+uint32(i), g, false)
		}
		if err := c.deliver(answers); err != nil || c.waiting != 0 || groups[1].Takes[0].Source != shard.Owner {
			t.Errorf("after id %d: %v, %d requests wait", last, err, c.waiting)
		}
	}
}

// A call without a request on a conn gives up no other, and what is given up gets no
// answer any more.
func TestGiveUpLeavesOtherChecks(t *testing.T) {
	c := newConn(nil, DefaultAttemptTimeout)
	c.healthy.Store(true)
	c.breaker.healthy = true
	a, other := &call{done: make(chan struct{}, 1)}, &call{done: make(chan struct{}, 1)}
	groups := []*shard.Group{{Takes: make([]shard.Take, 1)}}
	first, err := c.enqueue(a, groups, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.giveUp(other, first, time.Now()); n != 0 || c.waiting != 1 {
		t.Errorf("gave up %d requests, %d wait", n, c.waiting)
	}
	if n := c.giveUp(a, first, time.Now()); n != 1 || c.waiting != 0 {
		t.Errorf("gave up %d of one's own, %d wait", n, c.waiting)
	}
	late := &shard.Group{Allowed: true, Takes: make([]shard.Take, 1)}
	if err := c.deliver(appendAnswer([]byte{connVersion}, first, late, false)); err != nil {
		t.Error(err)
	}
	if groups[0].Allowed || a.left.Load() != 0 {
		t.Errorf("the late answer was written: %+v, %d wait", groups[0], a.left.Load())
	}
}
