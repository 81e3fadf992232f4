package view

import (
	"slices"
	"testing"
)

// Lives that have said farewell are gone at once, more than a third of the members too, and confirm nothing any more. None of them is registered.
func TestFarewellOfNodesThatAreNotSeen(t *testing.T) {
	w := newWorld(1)
	w.prefer[0] = []string{"a", "b", "c"}
	w.found(lives("a", "b", "c", "d"))
	for range 3 {
		w.adopt()
		w.next()
	}
	a, b, c := Life{"a", 1}, Life{"b", 1}, Life{"c", 1}
	if part := w.view.Partitions[0]; part.Owner != a || part.Standby != b {
		t.Fatalf("before: %+v", part)
	}
	v, urgency := Next(w.view, Seen{Farewells: []Life{a, c}}, w.all(), w.plan())
	if v == nil || urgency != Urgent {
		t.Fatalf("urgency %d, want %d", urgency, Urgent)
	}
	if part := v.Partitions[0]; part.Owner != b || formatLives(v.Lives()) != "b d" {
		t.Errorf("%s", format(v, w.view, urgency))
	}
	if !slices.Equal(v.Ended, []Life{a, c}) {
		t.Errorf("ended are %v, want %v", v.Ended, []Life{a, c})
	}

	// That c has said farewell is known only now: members may change again, although no member has adopted the last change.
	v.Ended = []Life{a}
	next, _ := Next(v, Seen{Farewells: []Life{c}}, nil, w.plan())
	if next == nil || !slices.Contains(next.Ended, c) {
		t.Fatalf("a life before the last change does not count for ended: %+v", next)
	}
	if !next.Confirmed(nil) {
		t.Error("members may not change, although half of those before have said farewell")
	}
}

// A node remembers farewells of lives that its view names, each once, until a view does not name them.
func TestFarewellsThatAreKept(t *testing.T) {
	var n NewestReports
	a, a2, x := Life{"a", 1}, Life{"a", 2}, Life{"x", 1}
	if n.NoteFarewell(a) {
		t.Error("a farewell before the first view is kept")
	}
	n.Keep(&View{Number: 1, Members: []Member{{Life: a}}})
	if !n.NoteFarewell(a) || n.NoteFarewell(a) {
		t.Error("the first farewell of a life is news, and no other one")
	}
	if n.NoteFarewell(x) || n.NoteFarewell(a2) {
		t.Error("a farewell is kept of a life that the view does not name")
	}
	if got := n.Farewells(); !slices.Equal(got, []Life{a}) {
		t.Errorf("farewells are %v, want %v", got, []Life{a})
	}
	n.Keep(&View{Number: 2, Members: []Member{{Life: a, State: Gone}, {Life: a2}}})
	if len(n.Farewells()) != 1 {
		t.Error("the farewell of a predecessor is forgotten")
	}
	n.Keep(&View{Number: 3, Members: []Member{{Life: a2}}})
	if len(n.Farewells()) != 0 {
		t.Error("a farewell is kept of a life that no view names any more")
	}
}
