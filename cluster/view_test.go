package cluster

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/cluster/view"
)

// A router asks the owner and the standby of a view that names the node which has each partition. A life that is gone is asked where its id is a member.
func TestRoutingView(t *testing.T) {
	a, old, b, c, gone := view.Life{ID: "a", Incarnation: 1}, view.Life{ID: "b", Incarnation: 1}, view.Life{ID: "b", Incarnation: 2}, view.Life{ID: "c", Incarnation: 7}, view.Life{ID: "d", Incarnation: 1}
	v := &view.View{Number: 8, Electorate: view.Electorate{Changed: 6, Waived: 5, Before: []view.Life{a}, GivenUp: []view.Life{gone}}}
	for _, m := range []view.Member{{Life: a}, {Life: old, State: view.Gone}, {Life: b}, {Life: c, State: view.Leaving}, {Life: gone, State: view.Gone}} {
		m.Address = m.ID + ":1"
		v.Members = append(v.Members, m)
	}
	v.Partitions = []view.Partition{{Owner: a, Standby: c}, {Owner: old}, {Owner: b, Standby: a, Predecessors: []view.Life{gone}}, {Owner: gone}}
	got, err := RoutingView(v)
	if err != nil {
		t.Fatal(err)
	}
	if want := "[{a a:1 1 false false} {b b:1 2 false false} {c c:1 7 true false} {d d:1 1 false true}]"; fmt.Sprint(got.Members) != want {
		t.Errorf("members %v, want %v", got.Members, want)
	}
	for p, want := range [][2]string{{"a", "c"}, {"b", "b"}, {"b", "a"}, {"d", "d"}} {
		owner, standby := got.Members[got.Ring.Owner(uint32(p))].ID, got.Members[got.Ring.Standby(uint32(p))].ID
		if owner != want[0] || standby != want[1] {
			t.Errorf("partition %d is %s's, and %s stands by, want %v", p, owner, standby, want)
		}
	}
	if got.Number != 8 {
		t.Errorf("view %+v", got)
	}
	v.Partitions = nil
	if _, err := RoutingView(v); err == nil {
		t.Error("a view without partitions is no error")
	}
}
