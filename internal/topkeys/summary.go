package topkeys

import (
	"cmp"
	"slices"
)

// Capacity is how many keys one list has room for. A count is wrong by 1/Capacity of all events of the list at most.
const Capacity = 256

// Name names a rule.
type Name struct{ Domain, ID string }

// entry is a key and what is known of its events: least <= real <= most, apart from sampling.
type entry struct {
	id          uint64
	rule        *Name
	text        string
	least, most uint64
	variance    float64 // of least, by sampling
}

// summary is a Space-Saving summary of a stream of weighted events. The zero value is empty.
type summary struct {
	entries []entry          // a heap by most, the lowest first; at most Capacity
	index   map[uint64]int32 // of entries, by id
	full    bool             // a key was dropped
}

// find reports whether a key is in the summary.
func (s *summary) find(id uint64) bool {
	_, found := s.index[id]
	return found
}

// add counts an event of a key. The texts are kept if the key is new.
func (s *summary) add(id uint64, rule *Name, text string, weight uint64, variance float64) {
	i, found := s.index[id]
	switch {
	case found:
	case len(s.entries) < Capacity:
		if s.index == nil {
			s.index = make(map[uint64]int32)
		}
		i = int32(len(s.entries))
		s.entries = append(s.entries, entry{id: id, rule: rule, text: text})
		s.index[id] = i
		s.up(i)
		i = s.index[id]
	default: // it takes the place of the key with the least, and may have had as much
		i = 0
		delete(s.index, s.entries[0].id)
		s.entries[0] = entry{id: id, rule: rule, text: text, most: s.entries[0].most}
		s.index[id] = 0
		s.full = true
	}
	e := &s.entries[i]
	e.least += weight
	e.most += weight
	e.variance += variance
	s.down(i)
}

// unlisted is the most that a key without an entry has.
func (s *summary) unlisted() uint64 {
	if !s.full {
		return 0
	}
	return s.entries[0].most
}

func (s *summary) reset() {
	clear(s.entries) // for their texts
	clear(s.index)
	s.entries, s.full = s.entries[:0], false
}

func (s *summary) up(i int32) {
	for i > 0 {
		parent := (i - 1) / 2
		if s.entries[parent].most <= s.entries[i].most {
			return
		}
		s.swap(i, parent)
		i = parent
	}
}

func (s *summary) down(i int32) {
	n := int32(len(s.entries))
	for {
		child := 2*i + 1
		if child >= n {
			return
		}
		if child+1 < n && s.entries[child+1].most < s.entries[child].most {
			child++
		}
		if s.entries[i].most <= s.entries[child].most {
			return
		}
		s.swap(i, child)
		i = child
	}
}

func (s *summary) swap(i, j int32) {
	s.entries[i], s.entries[j] = s.entries[j], s.entries[i]
	s.index[s.entries[i].id], s.index[s.entries[j].id] = i, j
}

// frozen is what is left of a summary, or of several.
type frozen struct {
	entries  []entry // in no order; at most Capacity
	unlisted uint64  // the most that a key without an entry has
}

func (s *summary) freeze() frozen { return frozen{slices.Clone(s.entries), s.unlisted()} }

// mergeFrozen returns a summary of what both have counted, with the highest entries of both, as many as there is room for.
func mergeFrozen(a, b frozen, room int) frozen {
	if len(b.entries) == 0 && b.unlisted == 0 {
		return a
	}
	index := make(map[uint64]int, len(a.entries)+len(b.entries))
	sum := frozen{slices.Grow(slices.Clone(a.entries), len(b.entries)), a.unlisted + b.unlisted}
	for i := range sum.entries {
		index[sum.entries[i].id] = i
		sum.entries[i].most += b.unlisted
	}
	for _, e := range b.entries {
		i, found := index[e.id]
		if !found {
			e.most += a.unlisted
			sum.entries = append(sum.entries, e)
			continue
		}
		known := &sum.entries[i]
		known.least += e.least
		known.most += e.most - b.unlisted
		known.variance += e.variance
	}
	return sum.cut(room)
}

// cut drops all but the highest entries.
func (f frozen) cut(room int) frozen {
	if len(f.entries) <= room {
		return f
	}
	slices.SortFunc(f.entries, func(a, b entry) int { return cmp.Or(cmp.Compare(b.most, a.most), cmp.Compare(a.id, b.id)) })
	f.unlisted = max(f.unlisted, f.entries[room].most)
	f.entries = slices.Clone(f.entries[:room])
	return f
}
