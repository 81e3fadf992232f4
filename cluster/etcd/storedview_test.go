package etcd

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// placement returns a view in which the members own the partitions of smallRing in turn.
func placement(number uint64, ids ...string) *view.View {
	v := &view.View{Number: number, Electorate: view.Electorate{Changed: 1}}
	for _, id := range ids {
		v.Members = append(v.Members, view.Member{Life: view.Life{ID: id, Incarnation: 1}, Address: id + ":1"})
	}
	for p := range smallRing.Partitions {
		v.Partitions = append(v.Partitions, view.Partition{Owner: v.Members[p%len(ids)].Life, Term: 1})
	}
	return v
}

// A registry whose views name the node that has each partition stores and delivers them, has a lost one written again, and does not replace a
// view that names ideal owners. Neither does a registry of those replace the new ones.
func TestSwapPlacement(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	a := runPlacements(t, p.addr())
	if _, err := a.Bootstrap(t.Context(), cluster.Params{Ring: smallRing}); err != nil {
		t.Fatal(err)
	}
	if v, err := a.ReadPlacement(t.Context()); v != nil || err != nil {
		t.Errorf("before the first view: %v, %v", v, err)
	}
	if err := a.SwapPlacement(t.Context(), placement(1, "a", "b"), 0); err != nil {
		t.Fatal(err)
	}
	content := a.awaitView(1)
	if content.Placement == nil || content.Placement.Partitions[1].Owner.ID != "b" || content.View.Members[content.View.Ring.Owner(1)].ID != "b" {
		t.Errorf("%+v", content)
	}
	if err := a.SwapPlacement(t.Context(), placement(1, "a"), content.ViewRevision); err == nil {
		t.Error("view 1 was replaced by another view 1")
	}
	if err := a.SwapPlacement(t.Context(), placement(2, "a", "b"), content.ViewRevision); err != nil {
		t.Fatal(err)
	}
	revision := a.awaitView(2).ViewRevision
	if v, err := a.ReadPlacement(t.Context()); err != nil || v.Number != 2 {
		t.Errorf("%v, %v", v, err)
	}
	other := run(t, 0, p.addr())
	other.logs.await(t, "etcd has a view that this node cannot read")
	if err := other.SwapView(t.Context(), viewOf(t, 3, "a"), revision); err == nil {
		t.Error("a view that names ideal owners replaced one that does not")
	}

	p.connect(anyServer(t).Endpoint())
	a.logs.await(t, "it has lost the parameters")
	if err := a.SwapPlacement(t.Context(), placement(3, "a"), revision); !errors.Is(err, cluster.ErrViewChanged) {
		t.Errorf("into a wiped etcd: %v", err)
	}
	if number, err := a.Restore(t.Context(), a.awaitView(2).View, nil, nil, false); number != 3 || err != nil {
		t.Fatalf("view %d, %v", number, err)
	}
	restored := a.awaitView(3).Placement
	if part := restored.Partitions[0]; part.Term != 3 || len(part.Predecessors) != 1 || part.Predecessors[0].ID != "b" {
		t.Errorf("partition 0 of the restored view: %+v", part)
	}
}
