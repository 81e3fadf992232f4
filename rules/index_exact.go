package rules

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
)

// table finds filed subjects by their exact values, which are texts that callers choose: a hash table with
// linear probing, at most half full, that does not change. What a look-up reads of it is one cache line,
// four slots. The hash is keyed: callers cannot choose texts that collide.
type table struct {
	seed  maphash.Seed
	slots []slot // as many as a power of two, or none
}

type slot struct {
	hash  uint64 // of the value, odd; 0 if the slot is free
	filed extent // under the value
}

// newTable makes a table of what is filed under values.
func newTable(filed map[string]extent) table {
	if len(filed) == 0 {
		return table{}
	}
	t := table{seed: maphash.MakeSeed(), slots: make([]slot, 2<<bits.Len(uint(len(filed)-1)))}
	for _, value := range slices.Sorted(maps.Keys(filed)) {
		hash, i := t.hash(value)
		for t.slots[i].hash != 0 {
			i = t.after(i)
		}
		t.slots[i] = slot{hash, filed[value]}
	}
	return t
}

// hash returns the hash of a text, and where to look for it first.
func (t *table) hash(text string) (hash uint64, i int) {
	hash = maphash.String(t.seed, text) | 1
	return hash, int(hash>>32) & (len(t.slots) - 1)
}

func (t *table) after(i int) int { return (i + 1) & (len(t.slots) - 1) }

// find returns which of the candidates are filed under a value, an empty extent if none is.
func (t *table) find(value string, candidates []filedSubject) extent {
	if len(t.slots) == 0 {
		return extent{}
	}
	for hash, i := t.hash(value); t.slots[i].hash != 0; i = t.after(i) {
		if s := &t.slots[i]; s.hash == hash && candidates[s.filed.begin].value() == value {
			return s.filed
		}
	}
	return extent{}
}
