package topkeys

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

var anyRule = &Name{"default", "r"}

// streams are what lists are tested with: the keys of n events, by number.
var streams = map[string]func(r *rand.Rand, n int) []uint64{
	"zipf": func(r *rand.Rand, n int) (keys []uint64) {
		z := rand.NewZipf(r, 1.1, 1, 1_000_000)
		for range n {
			keys = append(keys, z.Uint64())
		}
		return keys
	},
	"few": func(r *rand.Rand, n int) (keys []uint64) {
		for range n {
			keys = append(keys, r.Uint64N(Capacity))
		}
		return keys
	},
	// A flood of keys that come once, with which a tenth of the events of ten keys are mixed.
	"unique flood": func(r *rand.Rand, n int) (keys []uint64) {
		for i := range n {
			if r.IntN(10) == 0 {
				keys = append(keys, r.Uint64N(10))
			} else {
				keys = append(keys, uint64(1000+i))
			}
		}
		return keys
	},
	// The heavy keys come first, and then a flood that is built to flush the list: it visits more keys than there is room
	// for, each as often as the lowest entry can be.
	"flush": func(_ *rand.Rand, n int) (keys []uint64) {
		for i := range n / 4 {
			keys = append(keys, uint64(i%20))
		}
		for i := range n - len(keys) {
			keys = append(keys, uint64(1000+i%(Capacity+1)))
		}
		return keys
	},
	// As many keys as there is room for and one more, in turn: the classical worst case.
	"round robin": func(_ *rand.Rand, n int) (keys []uint64) {
		for i := range n {
			keys = append(keys, uint64(i%(Capacity+1)))
		}
		return keys
	},
}

// checkBounds compares what was counted with the exact counts of n events: each real count is within the entry's, entries
// are wrong by n/Capacity at most, and what is not listed has no more than is said.
func checkBounds(t *testing.T, f frozen, exact map[uint64]uint64, n uint64) {
	t.Helper()
	if len(f.entries) > Capacity {
		t.Fatalf("%d entries", len(f.entries))
	}
	listed := make(map[uint64]bool)
	for _, e := range f.entries {
		listed[e.id] = true
		if exact[e.id] < e.least || exact[e.id] > e.most {
			t.Errorf("key %d: %d is not between %d and %d", e.id, exact[e.id], e.least, e.most)
		}
		if e.most-e.least > n/Capacity {
			t.Errorf("key %d: wrong by up to %d of %d events", e.id, e.most-e.least, n)
		}
	}
	if len(listed) != len(f.entries) {
		t.Error("a key is listed twice")
	}
	if f.unlisted > n/Capacity {
		t.Errorf("unlisted keys can have %d of %d events", f.unlisted, n)
	}
	for id, count := range exact {
		if !listed[id] && count > f.unlisted {
			t.Errorf("key %d with %d events is not listed, at most %d", id, count, f.unlisted)
		}
	}
}

func TestSummaryAgainstExactCounts(t *testing.T) {
	const n = 100_000
	for name, stream := range streams {
		t.Run(name, func(t *testing.T) {
			var s summary
			exact := make(map[uint64]uint64)
			var sum uint64
			r := rand.New(rand.NewPCG(1, 2))
			for _, id := range stream(r, n) {
				weight := uint64(1) << r.IntN(4)
				s.add(id, anyRule, fmt.Sprint(id), weight, 0)
				exact[id] += weight
				sum += weight
			}
			checkBounds(t, s.freeze(), exact, sum)
			for i := range s.entries {
				if int(s.index[s.entries[i].id]) != i || len(s.index) != len(s.entries) {
					t.Fatal("the index does not fit the entries")
				}
			}
		})
	}
}

// Lists of many intervals, merged one after the other and in pairs, have the bounds of one list of all.
func TestMergeAgainstExactCounts(t *testing.T) {
	const n, parts = 100_000, 30
	for name, stream := range streams {
		t.Run(name, func(t *testing.T) {
			exact := make(map[uint64]uint64)
			var all []frozen
			var s summary
			for i, id := range stream(rand.New(rand.NewPCG(3, 4)), n) {
				s.add(id, anyRule, "", 1, 0)
				exact[id]++
				if (i+1)%(n/parts) == 0 {
					all = append(all, s.freeze())
					s.reset()
				}
			}
			all = append(all, s.freeze())
			var row frozen
			for _, f := range all {
				row = mergeFrozen(row, f, Capacity)
			}
			checkBounds(t, row, exact, n)
			for len(all) > 1 {
				all = append(all[2:], mergeFrozen(all[0], all[1], Capacity))
			}
			checkBounds(t, all[0], exact, n)
		})
	}
}

// The keys with most events are found among a flood, in order.
func TestHeavyKeysAreListedFirst(t *testing.T) {
	for _, name := range []string{"zipf", "unique flood", "flush"} {
		var s summary
		exact := make(map[uint64]uint64)
		for _, id := range streams[name](rand.New(rand.NewPCG(5, 6)), 200_000) {
			s.add(id, anyRule, "", 1, 0)
			exact[id]++
		}
		l := &List{}
		for _, e := range s.freeze().entries {
			l.Keys = append(l.Keys, Key{ID: e.id, Least: e.least, Most: e.most})
		}
		l.cut(10)
		heavy := slices.SortedFunc(maps.Keys(exact), func(a, b uint64) int { return int(exact[b]) - int(exact[a]) })
		for i, k := range l.Keys {
			if exact[k.ID] < exact[heavy[min(9, len(heavy)-1)]]*9/10 {
				t.Errorf("%s: place %d has key %d with %d events, of the first ten the last has %d", name, i, k.ID, exact[k.ID], exact[heavy[9]])
			}
		}
	}
}
