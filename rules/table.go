package rules

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
)

// table finds values by texts that callers choose: a hash table with linear probing,
// at most half full, that does not change. What a look-up reads of it is one cache
// line and the text. The hash is keyed: nobody can choose texts that collide.
type table[V any] struct {
	seed  maphash.Seed
	slots []slot[V] // as many as a power of two, or none
}

type slot[V any] struct {
	text  string
	value V
	tag   uint32 // of the text's hash, odd; 0 if the slot is free
}

func newTable[V any](values map[string]V) table[V] {
	if len(values) == 0 {
		return table[V]{}
	}
	t := table[V]{seed: maphash.MakeSeed(), slots: make([]slot[V], 2<<bits.Len(uint(len(values)-1)))}
	for _, text := range slices.Sorted(maps.Keys(values)) {
		i, tag := t.hash(text)
		for t.slots[i].tag != 0 {
			i = t.after(i)
		}
		t.slots[i] = slot[V]{text, values[text], tag}
	}
	return t
}

// hash returns where to look for a text first, and its tag.
func (t *table[V]) hash(text string) (i int, tag uint32) {
	h := maphash.String(t.seed, text)
	return int(h>>32) & (len(t.slots) - 1), uint32(h) | 1
}

func (t *table[V]) after(i int) int { return (i + 1) & (len(t.slots) - 1) }

// find returns the value of a text, the zero value if there is none.
func (t *table[V]) find(text string) (value V) {
	if len(t.slots) == 0 {
		return value
	}
	for i, tag := t.hash(text); t.slots[i].tag != 0; i = t.after(i) {
		if s := &t.slots[i]; s.tag == tag && s.text == text {
			return s.value
		}
	}
	return value
}
