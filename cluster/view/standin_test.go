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
