package view

import (
	"reflect"
	"slices"
	"testing"

	"github.com/weirlimit/weir/ring"
)

// A restored view can be stored, and begins a term in which each owner waits for all other members. Once they have given what they have, views lead to the plan.
func TestRestored(t *testing.T) {
	params := ring.Params{Partitions: 67, ReplicationFactor: 40, Load: 1.25}
	a, b, c := Life{"a", 1}, Life{"b", 3}, Life{"c", 2}
	gone := Life{"d", 1}
	v := &View{Number: 5, Electorate: Electorate{Changed: 4, Before: []Life{a, b, c, gone}}}
	for _, l := range []Life{a, b, c} {
		v.Members = append(v.Members, Member{Life: l, Address: l.ID + ":1"})
	}
	v.Members = append(v.Members, Member{Life: gone, Address: "d:1", State: Gone})
	for p := range params.Partitions {
		v.Partitions = append(v.Partitions, Partition{Owner: []Life{a, b, c, gone}[p%4], Term: 3, Standby: []Life{b, c, a, a}[p%4]})
	}
	next := Restored(v, 9)
	if _, err := Marshal(next); err != nil {
		t.Fatal(err)
	}
	lives := []Life{a, b, c}
	for p, part := range next.Partitions {
		rest := slices.DeleteFunc(slices.Clone(lives), func(l Life) bool { return l == part.Owner })
		if owner := v.Partitions[p].Owner; part.Term != 9 || owner != gone && part.Owner != owner || !slices.Equal(part.Predecessors, rest) || part.Standby != (Life{}) {
			t.Fatalf("partition %d: %+v after %+v", p, part, v.Partitions[p])
		}
	}
	if v.Number != 5 || len(v.Partitions[0].Predecessors) > 0 {
		t.Errorf("the view before has changed: %+v", v)
	}
	plan, err := PlanOf(params, next)
	if err != nil {
		t.Fatal(err)
	}
	views := 0
	for w := next; w != nil; views++ {
		next = w
		var reports Reports
		for _, l := range lives {
			r, _ := Report{Life: l}.Following(w, plan, func(int) bool { return true }, func(int) bool { return true })
			reports = append(reports, r)
		}
		w, _ = Next(w, Seen{}, reports, plan)
	}
	if views > 5 || !next.Follows(0, plan) {
		t.Errorf("%d views, and partition 0 is %+v where the plan is %+v", views, next.Partitions[0], plan[0])
	}
}

// A refounded view can be stored. It waits for the earlier life of its founder, if there was one.
func TestRefounded(t *testing.T) {
	plan := Plan{{Owner: "a"}, {Owner: "a"}}
	for incarnation, want := range map[uint64][]Life{1: nil, 4: {{"a", 3}}} {
		founder := Member{Life: Life{"a", incarnation}, Address: "a:1"}
		v := Refounded(founder, 58, plan)
		if _, err := Marshal(v); err != nil {
			t.Fatal(err)
		}
		for p, part := range v.Partitions {
			if !reflect.DeepEqual(part, Partition{Owner: founder.Life, Term: 58, Predecessors: want}) {
				t.Errorf("incarnation %d: partition %d is %+v", incarnation, p, part)
			}
		}
		if !slices.Equal(v.Lives(), []Life{founder.Life}) || v.Number != 58 {
			t.Errorf("incarnation %d: %+v", incarnation, v)
		}
	}
}

// A renumbered view has the same owners in new terms. They wait for their standbys, too.
func TestRenumbered(t *testing.T) {
	a, b, c := Life{"a", 1}, Life{"b", 3}, Life{"c", 2}
	v := First([]Member{{Life: a, Address: "a:1"}, {Life: b, Address: "b:1"}, {Life: c, Address: "c:1"}}, Plan{{Owner: "a"}, {Owner: "b"}, {Owner: "c"}})
	v.Partitions[0].Standby = b
	v.Partitions[1].Predecessors = []Life{c}
	next := Renumbered(v, 9)
	if _, err := Marshal(next); err != nil {
		t.Fatal(err)
	}
	want := []Partition{{Owner: a, Term: 9, Predecessors: []Life{b}}, {Owner: b, Term: 9, Predecessors: []Life{c}}, {Owner: c, Term: 9}}
	if !reflect.DeepEqual(next.Partitions, want) || next.Number != 9 {
		t.Errorf("%d: %+v", next.Number, next.Partitions)
	}
	if v.Partitions[0].Standby != b || v.Partitions[0].Term != 1 {
		t.Errorf("the view before has changed: %+v", v)
	}
}
