package view

import "testing"

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
