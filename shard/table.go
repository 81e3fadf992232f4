package shard

import (
	"math/bits"

	"github.com/weirlimit/weir/ring"
)

// Sizes of a table.
const (
	minSlots = 8
	// A table is at most fullNum/fullDen full, then it grows by half: between half and
	// three quarters, a look-up compares 2.5 keys at most on average, in memory that
	// lies side by side (Knuth, "The Art of Computer Programming", vol. 3, 6.4).
	fullNum, fullDen = 3, 4
	// A table that is less than 1/sparse full is made smaller by the sweeper.
	sparse = 4
)

// table keeps the counters of one partition: a hash table with open addressing and
// linear probing, whose slots hold no pointers, so that the garbage collector does not
// look at them. What is removed leaves no gap behind: those that come after it move up
// (Knuth's algorithm R).
type table struct {
	slots []slot
	n     int // used
}

// slot is empty if its entry never expires: if expires is 0.
type slot struct {
	key ring.Key
	entry
}

// home is where the search for a key begins. Keys are hashes: their high halves,
// scaled to the number of slots, are as good as any other hash. (The low halves say
// which partition they belong to.)
func (t *table) home(key ring.Key) int {
	hi, _ := bits.Mul64(key.Hi, uint64(len(t.slots)))
	return int(hi)
}

// find returns what is kept under a key, nil if nothing. The entry may be written to
// until the next add or remove.
func (t *table) find(key ring.Key) *entry {
	if t.n == 0 {
		return nil
	}
	for i := t.home(key); ; {
		s := &t.slots[i]
		switch {
		case s.expires == 0:
			return nil
		case s.key == key:
			return &s.entry
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
}

// add keeps e under a key that is not there yet.
func (t *table) add(key ring.Key, e entry) {
	if (t.n+1)*fullDen > len(t.slots)*fullNum {
		t.resize(len(t.slots) + len(t.slots)/2)
	}
	t.n++
	t.insert(slot{key, e})
}

func (t *table) insert(s slot) {
	i := t.home(s.key)
	for t.slots[i].expires != 0 {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.slots[i] = s
}

// resize moves everything to a table of so many slots. It is done for one partition at
// a time: half a megabyte of ten thousand counters, which takes some 0.1 ms.
func (t *table) resize(size int) {
	old := t.slots
	t.slots = make([]slot, max(size, minSlots))
	for i := range old {
		if old[i].expires != 0 {
			t.insert(old[i])
		}
	}
}

// remove forgets a key that is there.
func (t *table) remove(key ring.Key) {
	i := t.home(key)
	for t.slots[i].key != key || t.slots[i].expires == 0 {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.removeAt(i)
}

// removeAt empties slot i, and moves up into it what would not be found any more.
func (t *table) removeAt(i int) {
	t.n--
	for j := i; ; {
		if j++; j == len(t.slots) {
			j = 0
		}
		s := &t.slots[j]
		if s.expires == 0 {
			break
		}
		if t.between(i, t.home(s.key), j) {
			continue // it is found without passing i
		}
		t.slots[i] = *s
		i = j
	}
	t.slots[i] = slot{}
}

// between reports whether h comes after i and not after j, on the way from i to j that
// may lead around the end.
func (t *table) between(i, h, j int) bool {
	if i < j {
		return i < h && h <= j
	}
	return i < h || h <= j
}

// tidy makes the table smaller if most of it is empty.
func (t *table) tidy() {
	if len(t.slots) > minSlots && t.n*sparse < len(t.slots) {
		t.resize(2 * t.n)
	}
}
