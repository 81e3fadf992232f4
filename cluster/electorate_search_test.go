package cluster

import (
	"fmt"
	"math/bits"
	"strings"
	"testing"
)

// The search writes views with members that leave, join and are dropped, at most a third at a time, and has nodes adopt them in any
// order and skip some. Node 0 is the owner of a tenure until a view without it is written. It decides as long as it is a member of the
// newest view that it has adopted and a majority of those members, itself included, know no newer one. Once its successor takes it for ended,
// by any view that it may have adopted, it must not decide.
//
// Each rule is then broken in turn, and the search must notice.

const (
	electNodes = 5
	electViews = 5
	electMost  = 700_000 // states; three nodes have fewer
	electBrief = 150_000 // states in the short form
)

type electState struct {
	members [electViews]uint8 // of each view, as bits; views are numbered from 1
	written int8
	adopted [electNodes]int8 // the number of a view, 0 for none
	lost    int8             // the view with which the owner's tenures are made again by others, 0 for none
}

type electSearch struct {
	start, nodes int
	broken       string
	views        map[electState]*View // by the views of a state
}

func (s *electSearch) life(i int) Life { return Life{string(rune('a' + i)), 1} }

func (s *electSearch) membersOf(mask uint8) (members []Member) {
	for i := range electNodes {
		if mask>>i&1 == 1 {
			members = append(members, Member{ID: s.life(i).ID, Incarnation: 1})
		}
	}
	return members
}

// view returns the view of that number as nextView writes it.
func (s *electSearch) view(x *electState, number int8) *View {
	key := electState{members: x.members, written: number}
	for i := number; i < electViews; i++ {
		key.members[i] = 0
	}
	if v := s.views[key]; v != nil {
		return v
	}
	v := &View{Number: uint64(number), Members: s.membersOf(x.members[number-1]), Changed: 1}
	if number > 1 {
		before := s.view(x, number-1)
		v.Changed, v.Before = before.Changed, before.Before
		if !sameIDs(before.Members, v.Members) {
			v.Changed, v.Before = v.Number, livesOf(before.Members)
		}
	}
	s.views[key] = v
	return v
}

// known is what has been adopted: that a node knows all of it is the worst that may happen.
func (s *electSearch) known(x *electState, into adoptions) adoptions {
	clear(into)
	for i, v := range x.adopted {
		into.note(s.life(i), uint64(v))
	}
	return into
}

func (s *electSearch) mayChange(x *electState, known adoptions) bool {
	return s.broken == "members change as fast as views are adopted" || known.confirmed(s.view(x, x.written))
}

// ended reports whether the owner has ended in the eyes of a successor that has adopted some view.
func (s *electSearch) ended(x *electState, known adoptions) bool {
	for number := x.lost; number <= x.written; number++ {
		v := s.view(x, number)
		switch s.broken {
		case "it is the last view with the owner that counts":
			if known.half(v, livesOf(v.Members), uint64(x.lost)) {
				return true
			}
		case "half is rounded up":
			past := 0
			for _, l := range v.Before {
				if known.isPast(v, l, v.Changed) {
					past++
				}
			}
			if past >= len(v.Before)/2 {
				return true
			}
		default:
			if known.ended(v, uint64(x.lost)) {
				return true
			}
		}
	}
	return false
}

func (s *electSearch) decides(x *electState) bool {
	number := x.adopted[0]
	mask := x.members[number-1]
	if mask&1 == 0 && s.broken != "a node that is no member decides nothing" {
		return false
	}
	n, witnesses := bits.OnesCount8(mask|1), 0
	for i, v := range x.adopted {
		if (mask|1)>>i&1 == 1 && v <= number {
			witnesses++
		}
	}
	return witnesses > n/2
}

func (s *electSearch) next(x electState, known adoptions, visit func(electState)) {
	for i := range x.adopted {
		for v := x.adopted[i] + 1; v <= x.written; v++ {
			t := x
			t.adopted[i] = v
			visit(t)
		}
	}
	if x.written == electViews {
		return
	}
	last := x.members[x.written-1]
	write := func(mask uint8, lost bool) {
		t := x
		t.members[t.written] = mask
		t.written++
		if lost {
			t.lost = t.written
		}
		visit(t)
	}
	if last&1 == 0 && x.lost == 0 {
		write(last, true) // a node has found that no node has the tenures
	}
	if !s.mayChange(&x, known) {
		return
	}
	n := bits.OnesCount8(last)
	for gone := uint8(0); gone <= last; gone++ {
		if gone&^last != 0 || bits.OnesCount8(gone) > max(1, n/3) {
			continue
		}
		for come := uint8(0); bits.Len8(come) <= s.nodes; come++ {
			if mask := last&^gone | come; come&last == 0 && come&1 == 0 && gone|come != 0 && mask != 0 {
				write(mask, x.lost == 0 && gone&1 == 1)
				if x.lost == 0 && gone&1 == 1 {
					write(mask, false) // what it had was another's, and is found to be lost later
				}
			}
		}
	}
}

// run visits all states that can be reached, and returns how many there are, and the way to one in which the owner and
// its successor both decide.
func (s *electSearch) run(most int) (states int, way []electState) {
	s.views = make(map[electState]*View)
	first := electState{written: 1}
	first.members[0] = 1<<s.start - 1
	for i := range s.start {
		first.adopted[i] = 1
	}
	seen := map[electState]int32{first: -1}
	queue := []electState{first}
	known := make(adoptions)
	for at := 0; at < len(queue) && len(queue) <= most; at++ {
		x := queue[at]
		s.known(&x, known)
		if x.lost > 0 && s.decides(&x) && s.ended(&x, known) {
			for i := int32(at); i >= 0; i = seen[queue[i]] {
				way = append(way, queue[i])
			}
			return len(queue), way
		}
		s.next(x, known, func(t electState) {
			if _, found := seen[t]; !found {
				seen[t] = int32(at)
				queue = append(queue, t)
			}
		})
	}
	return len(queue), nil
}

var electorates = []electSearch{{start: 3, nodes: 3}, {start: 3, nodes: 4}, {start: 5, nodes: 5}}

func TestSearchElectorates(t *testing.T) {
	if raced {
		t.Skip("nothing races in a search, which is long enough without the race detector")
	}
	most := electMost
	if !allTests() {
		most = electBrief
	}
	for _, s := range electorates {
		states, way := s.run(most)
		t.Logf("%d members, %d nodes: %d states", s.start, s.nodes, states)
		if way != nil {
			t.Fatalf("the owner decides although it has ended:\n%s", formatElections(way))
		}
	}
}

func TestSearchElectoratesFindsDefects(t *testing.T) {
	if raced {
		t.Skip("as TestSearchElectorates")
	}
	for _, rule := range []string{
		"members change as fast as views are adopted",
		"it is the last view with the owner that counts",
		"half is rounded up",
		"a node that is no member decides nothing",
	} {
		found := false
		for _, s := range electorates {
			s.broken = rule
			states, way := s.run(electMost)
			if found = way != nil; found {
				t.Logf("%s, broken: %d members, %d steps, %d states", rule, s.start, len(way)-1, states)
				break
			}
		}
		if !found {
			t.Errorf("without the rule that %s all is as good as with it", rule)
		}
	}
}

func formatElections(way []electState) string {
	var b strings.Builder
	for i := len(way) - 1; i >= 0; i-- {
		x := way[i]
		fmt.Fprintf(&b, "views %05b adopted %v lost with %d\n", x.members[:x.written], x.adopted, x.lost)
	}
	return b.String()
}
