package view

import (
	"slices"
	"testing"
)

// lives reads "a b@2".
func lives(names ...string) (all []Life) {
	for _, s := range names {
		all = append(all, lifeOf(s))
	}
	return all
}

// Half of the members from before the last change, rounded up, must have adopted it. A later life counts for the earlier, and so does the
// word that a life has ended. A view without another change of members needs half of the members, too.
func TestHaveLeft(t *testing.T) {
	for _, tc := range []struct {
		before  []Life
		ended   []Life
		adopted map[string]uint64
		waived  uint64
		number  uint64 // of the view that has replaced the owner
		want    bool
	}{
		{lives("a", "b", "c"), nil, map[string]uint64{"b": 5}, 0, 5, false},
		{lives("a", "b", "c"), nil, map[string]uint64{"b": 5, "c": 4}, 0, 5, false},
		{lives("a", "b", "c"), nil, map[string]uint64{"b": 5, "c": 7}, 0, 5, true},
		{lives("a", "b"), nil, map[string]uint64{"b": 5}, 0, 5, true},
		{lives("a", "b", "c", "d"), nil, map[string]uint64{"b": 5}, 0, 5, false},
		{lives("a", "b", "c"), lives("a"), map[string]uint64{"b": 5}, 0, 5, true},
		{lives("a", "b", "c@0"), nil, map[string]uint64{"b": 5}, 0, 5, true}, // c is a member in its first life by now
		{lives("a", "b", "c"), nil, map[string]uint64{"b": 6, "c": 5}, 0, 6, false},
		{lives("a", "b", "c"), nil, map[string]uint64{"b": 6, "c": 6}, 0, 6, true},
		{lives("a", "b", "c"), nil, map[string]uint64{"b": 4, "c": 4}, 4, 4, true},
		{lives("a", "b", "c"), nil, map[string]uint64{"b": 4, "c": 4}, 4, 5, false},
	} {
		v := &View{Number: 7, Electorate: Electorate{Changed: 5, Before: tc.before, Ended: tc.ended, Waived: tc.waived}}
		for _, l := range lives("b", "c", "d") {
			v.Members = append(v.Members, Member{Life: l})
		}
		var reports Reports
		for _, id := range []string{"a", "b", "c", "d"} {
			reports = append(reports, Report{Life: Life{id, 1}, Adopted: tc.adopted[id]})
		}
		if got := v.HaveLeft(tc.number, reports); got != tc.want {
			t.Errorf("before %v, ended %v, adopted %v, waived %d: half has left the owner of before view %d: %t, want %t",
				tc.before, tc.ended, tc.adopted, tc.waived, tc.number, got, tc.want)
		}
	}
}

// A member that has left counts at once as one that decides no more, even if it cannot be removed yet.
func TestLeftCountsAtOnce(t *testing.T) {
	w := newWorld(1)
	w.found(lives("a", "b"))
	w.see(Life{"c", 1}, Ready)
	w.next() // changes members, and no member has adopted that
	w.see(Life{"b", 1}, Left)
	v, urgency := w.next()
	if v == nil || urgency != Urgent || !slices.Equal(v.Ended, lives("b")) || !v.Confirmed(nil) {
		t.Fatalf("the view after a member has left is %+v", v)
	}
	if v, _ := w.next(); v == nil || slices.Contains(v.Lives(), Life{"b", 1}) {
		t.Fatalf("it is not removed: %+v", v)
	}
	if v, _ := w.next(); v != nil {
		t.Fatalf("one more view: %+v", v)
	}
}

// Those that were given up are named until they are known to have adopted a later view.
func TestGivenUp(t *testing.T) {
	w := newWorld(1)
	w.found(lives("a", "b", "c"))
	w.see(Life{"d", 1}, Ready)
	w.next()
	first := w.view
	w.overdue = true
	w.next()
	if got := formatLives(w.view.GivenUp); got != "a b c" || w.view.Waived != first.Number {
		t.Fatalf("given up are %q, up to view %d", got, w.view.Waived)
	}
	before := w.view
	w.overdue = false
	w.adopt(lives("a")...)
	w.see(Life{"d", 1}, Leaving)
	w.next()
	if got := formatLives(w.view.GivenUp); got != "b c" || formatLives(before.GivenUp) != "a b c" {
		t.Errorf("given up are %q, and in the view before %q", got, formatLives(before.GivenUp))
	}
}
