package view

import (
	"testing"
)

// A learner is the plan's owner first, then its standby, unless it has a role already.
func TestLearner(t *testing.T) {
	v := &View{Members: []Member{{Life: Life{"a", 1}}, {Life: Life{"b", 2}}, {Life: Life{"c", 1}}}, Partitions: make([]Partition, 1)}
	for _, tc := range []struct {
		owner, standby string
		place          Place
		want           string
	}{
		{"a", "", Place{"b", "c"}, "b@2"},
		{"a", "b@2", Place{"b", "c"}, "c"},
		{"a", "b@2", Place{"a", "c"}, "c"},
		{"a", "b@2", Place{"a", "b"}, ""},
		{"a", "b", Place{"a", "b"}, "b@2"}, // an earlier life is another node
		{"a", "", Place{"a", "x"}, ""},
		{"a", "", Place{"a", ""}, ""},
	} {
		v.Partitions[0] = Partition{Owner: lifeOf(tc.owner), Standby: lifeOf(tc.standby)}
		if got := v.Learner(0, tc.place); got.name() != tc.want && (got != Life{} || tc.want != "") {
			t.Errorf("owner %s, standby %s, plan %v: %s learns, want %q", tc.owner, tc.standby, tc.place, got.name(), tc.want)
		}
	}
}
