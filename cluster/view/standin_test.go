package view

import (
	"fmt"
	"slices"
	"testing"
)

// The learner stands in for an owner that has said farewell, if it has a complete copy of the newest view and that names no standby.
func TestStandIn(t *testing.T) {
	a, b, c := Life{"a", 1}, Life{"b", 1}, Life{"c", 1}
	plan := Plan{{"b", "c"}}
	complete := Reports{{Life: b, Adopted: 7, Complete: Set{0}}}
	for _, tc := range []struct {
		name      string
		standby   Life
		farewells []Life
		reports   Reports
		want      Life
	}{
		{"the learner", Life{}, []Life{a}, complete, b},
		{"the owner is there", Life{}, []Life{c}, complete, Life{}},
		{"there is a standby", c, []Life{a}, complete, Life{}},
		{"the learner has said farewell, too", Life{}, []Life{a, b}, complete, Life{}},
		{"its copy is not complete", Life{}, []Life{a}, Reports{{Life: b, Adopted: 7}}, Life{}},
		{"its copy was complete in an earlier view", Life{}, []Life{a}, Reports{{Life: b, Adopted: 6, Complete: Set{0}}}, Life{}},
		{"another node has a copy", Life{}, []Life{a}, Reports{{Life: c, Adopted: 7, Complete: Set{0}}}, Life{}},
	} {
		v := &View{Number: 7, Members: []Member{{Life: a}, {Life: b}, {Life: c}}, Partitions: []Partition{{Owner: a, Term: 3, Standby: tc.standby}}}
		if got := v.StandIn(0, plan, tc.farewells, tc.reports); got != tc.want {
			t.Errorf("%s: %v stands in, want %v", tc.name, got, tc.want)
		}
	}
}

// If all are gone that may have a copy, one that has something stands in.
func TestLastResort(t *testing.T) {
	lives := func(ids string) (all []Life) {
		for _, id := range ids {
			all = append(all, Life{string(id), 1})
		}
		return all
	}
	of := func(id string) Life { return lives(id)[0] }
	later := Life{"b", 2}
	for _, tc := range []struct {
		name         string
		standby      Life
		predecessors []Life
		gone         []Life
		complete     Life
		want         []Life // one of these; none at all if there are none
	}{
		{"the owner is there", of("b"), nil, lives("b"), Life{}, nil},
		{"the standby is there", of("b"), nil, lives("a"), Life{}, nil},
		{"a predecessor is there", of("b"), lives("c"), lives("ab"), Life{}, nil},
		{"one of the others", of("c"), nil, lives("ac"), Life{}, append(lives("de"), later)},
		{"one that is there", Life{}, nil, append(lives("ac"), later), Life{}, lives("de")},
		{"the last one", of("c"), nil, append(lives("ace"), later), Life{}, lives("d")},
		{"the learner, which has a copy", of("c"), nil, lives("ac"), of("e"), lives("e")},
		{"the learner is gone", of("c"), nil, lives("ace"), of("e"), append(lives("d"), later)},
		{"a later life of the standby", of("b"), nil, lives("ab"), of("e"), []Life{later}},
		{"a later life of a predecessor", Life{}, lives("b"), lives("ab"), of("e"), []Life{later}},
		{"the later life is gone, too", of("b"), nil, append(lives("ab"), later), Life{}, lives("cde")},
		{"all are gone", of("c"), nil, append(lives("abcde"), later), Life{}, nil},
	} {
		v := &View{
			Number: 7, Partitions: slices.Repeat([]Partition{{Owner: of("a"), Term: 3, Standby: tc.standby, Predecessors: tc.predecessors}}, 50),
			Members: []Member{{Life: of("a"), State: Gone}, {Life: of("b"), State: Gone}, {Life: later}, {Life: of("c")}, {Life: of("d")}, {Life: of("e")}},
		}
		plan := Plan(slices.Repeat([]Place{{"e", "d"}}, len(v.Partitions)))
		isGone := func(l Life) bool { return slices.Contains(tc.gone, l) }
		serving := v.ServingOf(func(l Life) bool { return !isGone(l) })
		var got []Life
		for p := range v.Partitions {
			l := v.LastResort(p, plan, Reports{{Life: tc.complete, Adopted: 7, Complete: Set{0}}}, isGone, serving)
			if !slices.Contains(got, l) && l != (Life{}) {
				got = append(got, l)
			}
		}
		slices.SortFunc(got, compareLives)
		slices.SortFunc(tc.want, compareLives)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v stand in, want %v", tc.name, got, tc.want)
		}
	}
}

// A member that comes takes the place of others in its share of the partitions, and nothing else changes.
func TestLastResortsStay(t *testing.T) {
	var members []Member
	for i := range 11 {
		members = append(members, Member{Life: Life{fmt.Sprint("node-", i), 1}})
	}
	before, after := &View{Members: members[:10]}, &View{Members: members}
	all := func(Life) bool { return true }
	old, now, moved := before.ServingOf(all), after.ServingOf(all), 0
	const partitions = 11000
	for p := range partitions {
		switch l := now.first(p); {
		case l == members[10].Life:
			moved++
		case l != old.first(p):
			t.Fatalf("partition %d moves from %v to %v", p, old.first(p), l)
		}
	}
	if moved < partitions/11*8/10 || moved > partitions/11*12/10 {
		t.Errorf("%d of %d partitions move to the new member", moved, partitions)
	}
}

// If owner and standby are gone, the learner is the next owner only if it has a complete copy. What another node reports of a partition that it does not
// learn means nothing.
func TestOnlyTheLearnerGoesOn(t *testing.T) {
	a, b, c, x := Life{"a", 1}, Life{"b", 1}, Life{"c", 1}, Life{"x", 1}
	part := Partition{Owner: a, Term: 3}
	for _, tc := range []struct {
		name         string
		predecessors []Life
		complete     Life
		want         Life
	}{
		{"the learner has a complete copy", nil, b, b},
		{"the plan's standby reports what it does not learn", nil, c, b},
		{"a predecessor was replaced by the owner that has fed the learner", []Life{x}, b, b},
		{"a predecessor, and no complete copy", []Life{x}, c, x},
	} {
		part.Predecessors = tc.predecessors
		v := &View{Number: 7, Members: []Member{{Life: a}, {Life: b}, {Life: c}, {Life: x}}, Partitions: []Partition{part}, Electorate: Electorate{Changed: 1}}
		reports := Reports{{Life: a, Adopted: 7, Settled: Set{0}}, {Life: b, Adopted: 7}, {Life: c, Adopted: 7}}
		for i := range reports {
			if reports[i].Life == tc.complete {
				reports[i].Complete = Set{0}
			}
		}
		plan := Plan{{"b", "c"}}
		next, _ := Next(v, Seen{Farewells: []Life{a}}, reports, plan)
		if next == nil {
			t.Fatalf("%s: there is no next view", tc.name)
		}
		if got := next.Partitions[0].Owner; got != tc.want {
			t.Errorf("%s: %v owns it next, want %v", tc.name, got, tc.want)
		}
	}
}
