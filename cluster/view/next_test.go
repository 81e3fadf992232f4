package view

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/ring"
)

// maxCalm is how many views lead from any state of six nodes to the plan, at most: some for members, then for each partition the plan's
// owner becomes standby, then owner, then the plan's standby becomes standby.
const maxCalm = 9

// However nodes come, go, say farewell, are restarted and fall silent, and are reported: each view follows the one before by the
// rules, and once all is calm the views reach the plan and end.
func TestViewsFollowTheRules(t *testing.T) {
	longest := 0
	rapid.Check(t, func(t *rapid.T) {
		ids := []string{"a", "b", "c", "d", "e", "f"}
		w := newWorld(5)
		for p := range w.prefer {
			w.prefer[p] = rapid.Permutation(ids).Draw(t, "prefer")
		}
		var first []Life
		for _, id := range ids[:rapid.IntRange(1, 4).Draw(t, "first")] {
			first = append(first, Life{id, 1})
		}
		w.found(first)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			w.disturb(t, ids)
			follow(t, w)
		}
		longest = max(longest, calm(t, w))
	})
	t.Logf("the longest way to the plan had %d views", longest)
}

// disturb has something happen.
func (w *world) disturb(t *rapid.T, ids []string) {
	l := Life{rapid.SampledFrom(ids).Draw(t, "id"), 1}
	for w.isKnown(Life{l.ID, l.Incarnation + 1}) {
		l.Incarnation++
	}
	n, known := w.nodes[l]
	switch what := rapid.IntRange(0, 11).Draw(t, "what"); {
	case what < 5:
		var some []Life
		for k := range w.nodes {
			some = append(some, k)
		}
		slices.SortFunc(some, compareLives)
		w.adopt(some[rapid.IntRange(0, len(some)-1).Draw(t, "from"):]...)
	case what == 5 && known && n.State != Left:
		w.see(l, Gone)
	case what == 6 && known && n.State == Gone:
		w.see(l, Ready) // it was not
	case what == 6 && known && n.State == Ready:
		w.see(l, Leaving)
	case what == 7 && known && n.State == Leaving:
		w.see(l, Left)
	case what == 7:
		w.overdue = true
	case what == 8 && known && n.State != Ready:
		w.see(Life{l.ID, l.Incarnation + 1}, Ready)
	case what == 9 && !known:
		w.see(l, Ready)
	case what == 9:
		w.deaf[l] = !w.deaf[l]
	case what == 10 && known: // more than it should have reported
		w.reports[l] = Report{Life: l, Adopted: w.view.Number, Complete: Set{0}}
	case what == 11 && known && n.State != Left: // what else is seen of it stays
		w.farewells = append(w.farewells, l)
	}
}

func (w *world) isKnown(l Life) bool {
	_, known := w.nodes[l]
	return known
}

// mayBeUp reports whether nothing is seen that speaks against a life.
func (w *world) mayBeUp(v *View, l Life) bool {
	later := w.isKnown(Life{l.ID, l.Incarnation + 1})
	return v.IsMember(l) && w.nodes[l].State != Gone && w.nodes[l].State != Left && !later && !slices.Contains(w.farewells, l)
}

func follow(t *rapid.T, w *world) (wrote bool) {
	old, reports, overdue := w.view, w.all(), w.overdue
	plan := w.plan()
	v, urgency := w.next()
	w.overdue = false
	if v == nil {
		if problem := w.keepsFarewell(old, old); problem != "" {
			t.Fatalf("nothing to write: %s\n%s", problem, format(old, nil, Nothing))
		}
		return false
	}
	if problem := w.keepsFarewell(v, old); problem != "" {
		t.Fatalf("%s\n%s", problem, format(v, old, urgency))
	}
	if v.Number != old.Number+1 || urgency == Nothing || len(v.staying()) == 0 {
		t.Fatalf("%s", format(v, old, urgency))
	}
	if b, err := Marshal(v); err != nil {
		t.Fatalf("%v: %s", err, format(v, old, urgency))
	} else if again, err := Unmarshal(b); err != nil || fmt.Sprint(again) != fmt.Sprint(v) {
		t.Fatalf("%s is read as %v: %v", b, again, err)
	}
	confirmed := old.Confirmed(reports)
	if !sameIDs(old.Lives(), v.Lives()) && !confirmed && !overdue {
		t.Fatalf("members change before half has adopted: %s", format(v, old, urgency))
	}
	if (v.Waived != old.Waived) != (overdue && !confirmed) {
		t.Fatalf("view %d waives %d", v.Number, v.Waived)
	}
	for p := range v.Partitions {
		if problem := w.fault(v, old, p, reports, plan); problem != "" {
			t.Fatalf("partition %d: %s\nbefore: %+v\n%s", p, problem, old.Partitions[p], format(v, old, urgency))
		}
	}
	return true
}

// keepsFarewell returns which partition a life still owns in a view that has said farewell, although its standby could own it. A ready
// member of the view before stays, so that members may go.
func (w *world) keepsFarewell(v, old *View) string {
	stays := slices.ContainsFunc(old.Members, func(m Member) bool { return m.State == Ready && w.nodes[m.Life].State == Ready && w.mayBeUp(v, m.Life) })
	for p, part := range v.Partitions {
		if stays && slices.Contains(w.farewells, part.Owner) && w.mayBeUp(v, part.Standby) {
			return fmt.Sprintf("partition %d stays with %s, which has said farewell", p, part.Owner.name())
		}
	}
	return ""
}

// fault returns what is wrong with a partition's step from one view to the next.
func (w *world) fault(v, old *View, p int, reports Reports, plan Plan) string {
	was, is := old.Partitions[p], v.Partitions[p]
	moves := is.Owner != was.Owner
	planned := moves && w.mayBeUp(v, was.Owner) && slices.Contains(is.Predecessors, was.Owner) && is.Standby == was.Owner || !moves && is.Standby != was.Standby && is.Standby != Life{}
	switch {
	case is.Owner == is.Standby || slices.Contains(is.Predecessors, is.Owner):
		return "it has two roles for a node"
	case moves != (is.Term != was.Term) || moves && is.Term != v.Number:
		return "its term is wrong"
	case !v.IsMember(is.Owner) && is.Owner != was.Owner, !v.IsMember(is.Standby) && is.Standby != Life{} && is.Standby != was.Standby:
		return "a node without membership has a role"
	case moves && is.Owner != was.Standby && (w.mayBeUp(v, was.Owner) || w.mayBeUp(v, was.Standby)):
		return "neither owner nor standby is owner, and one of them is left"
	case moves && !slices.Contains(is.Predecessors, was.Owner):
		return "the owner before is no predecessor"
	case moves && is.Standby != Life{} && is.Standby != was.Owner:
		return "two changes at once"
	case planned && !reports.settled(old, p):
		return "a planned change although the last has not settled"
	case planned && moves && (is.Owner.ID != plan[p].Owner || !reports.complete(old, p, is.Owner)):
		return "a swap with a standby that is not the plan's owner or not complete"
	case planned && !moves && !reports.complete(old, p, is.Standby):
		return "the new standby has no complete copy"
	}
	for _, l := range was.Predecessors { // if the standby is the same, it has not settled since
		if is.Owner != l && !slices.Contains(is.Predecessors, l) && !reports.settled(old, p) {
			return "a predecessor is forgotten"
		}
	}
	for _, l := range is.Predecessors {
		if _, found := v.index(l); !found {
			return "a predecessor has no address"
		}
	}
	return ""
}

// calm returns in how many views a cluster in which nothing happens any more reaches its plan.
func calm(t *rapid.T, w *world) (views int) {
	for l, n := range w.nodes {
		w.deaf[l] = false
		if n.State == Ready && (w.isKnown(Life{l.ID, l.Incarnation + 1}) || slices.Contains(w.farewells, l)) {
			w.see(l, Gone)
		}
	}
	for stuck := 0; stuck < 2; {
		w.adopt()
		if follow(t, w) {
			views, stuck = views+1, 0
		} else {
			w.overdue = len(w.view.Missing(w.all())) > 0
			stuck++
		}
		if views > maxCalm {
			t.Fatalf("after %d views there are still more: %s", views, format(w.view, nil, Planned))
		}
	}
	ready := slices.ContainsFunc(w.seen().Nodes, func(n Member) bool { return n.State == Ready })
	for p := range w.view.Partitions {
		if ready && !w.view.Follows(p, w.plan()) {
			t.Fatalf("partition %d ends elsewhere than %v, with %v: %s", p, w.plan()[p], w.seen(), format(w.view, nil, Planned))
		}
	}
	return views
}

// No view drops more than a third of the members without their word, and at least one stays.
func TestDropsAThirdAtMost(t *testing.T) {
	for n := 1; n <= 20; n++ {
		w := newWorld(1)
		var lives []Life
		for i := range n {
			lives = append(lives, Life{fmt.Sprintf("n%02d", i), 1})
		}
		w.found(lives)
		for _, l := range lives {
			w.see(l, Gone)
		}
		w.next()
		if dropped := n - len(w.view.Lives()); n == 1 && dropped != 0 || n > 1 && dropped != max(1, n/3) {
			t.Errorf("of %d members that are gone at once, %d are dropped", n, dropped)
		}
	}
}

// A cluster has at most as many members as there is room for, the first by id.
func TestRoom(t *testing.T) {
	w := newWorld(1)
	w.found([]Life{{"b", 1}})
	seen := w.seen()
	seen.Most = 2
	for _, id := range []string{"d", "a", "c"} {
		seen.Nodes = append(seen.Nodes, Member{Life: Life{id, 1}})
	}
	v, _ := Next(w.view, seen, nil, w.plan())
	if got := formatLives(v.Lives()); got != "a b" {
		t.Errorf("members are %s, want a b", got)
	}
}

// What Next is given stays as it is.
func TestNextChangesNoArgument(t *testing.T) {
	w := newWorld(2)
	w.found([]Life{{"a", 1}, {"b", 1}, {"c", 1}})
	for range 3 {
		w.adopt()
		w.next()
	}
	w.see(Life{"a", 1}, Gone)
	w.farewells = lives("b")
	before, seen := fmt.Sprintf("%+v", *w.view), w.seen()
	seenBefore := fmt.Sprint(seen)
	if v, _ := Next(w.view, seen, w.all(), w.plan()); v == nil {
		t.Fatal("there is nothing to write")
	}
	if after := fmt.Sprintf("%+v", *w.view); after != before || fmt.Sprint(seen) != seenBefore {
		t.Errorf("view and nodes are\n%s, were\n%s", after, before)
	}
}

// The plan is that of the ring over the members that stay.
func TestPlanIsTheRing(t *testing.T) {
	v := &View{Members: []Member{
		{Life{"a", 1}, "", Ready}, {Life{"b", 1}, "", Gone}, {Life{"b", 2}, "", Ready}, {Life{"c", 1}, "", Leaving}, {Life{"d", 1}, "", Ready},
	}}
	plan, err := PlanOf(ring.DefaultParams, v)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{"a", "b", "d"}
	r, err := ring.Build(ring.DefaultParams, ids)
	if err != nil {
		t.Fatal(err)
	}
	for p, place := range plan {
		if want := (Place{ids[r.Owner(uint32(p))], ids[r.Standby(uint32(p))]}); place != want {
			t.Fatalf("partition %d is to be at %v, want %v", p, place, want)
		}
	}
	if _, err := PlanOf(ring.DefaultParams, &View{}); err == nil {
		t.Error("there is a plan without members")
	}
	alone := &View{Members: v.Members[:1]}
	if plan, _ := PlanOf(ring.DefaultParams, alone); plan[0] != (Place{"a", ""}) {
		t.Errorf("alone: %v", plan[0])
	}
}

// Partitions whose owner and standby in the plan are gone too begin again on different nodes.
func TestFreshCountersAreSpread(t *testing.T) {
	w := newWorld(4)
	w.found(lives("a", "b", "c", "d", "e", "f"))
	for p := range w.view.Partitions {
		w.prefer[p] = []string{"a", "b"}
		w.view.Partitions[p].Owner = Life{"a", 1}
	}
	plan := w.plan()
	w.see(Life{"a", 1}, Gone)
	w.see(Life{"b", 1}, Gone)
	v, _ := Next(w.view, w.seen(), nil, plan)
	owners := make(map[Life]bool)
	for _, part := range v.Partitions {
		owners[part.Owner] = true
	}
	if len(owners) != 4 {
		t.Errorf("four partitions begin on %d of four nodes", len(owners))
	}
}
