package etcd

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir/cluster"
)

// A view that etcd has lost is written again: its owners are predecessors of the restored one's.
func TestRestoredView(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	a := run(t, 0, p.addr())
	if _, err := a.Bootstrap(t.Context(), cluster.Params{Ring: smallRing}); err != nil {
		t.Fatal(err)
	}
	if v, err := a.ReadView(t.Context()); v != nil || err != nil {
		t.Errorf("before the first view: %v, %v", v, err)
	}
	if err := a.SwapView(t.Context(), viewOf(1, "a", "b"), 0); err != nil {
		t.Fatal(err)
	}
	content := a.awaitView(1)
	if content.View.Partitions[1].Owner.ID != "b" || content.Routing.Members[content.Routing.Ring.Owner(1)].ID != "b" {
		t.Errorf("%+v", content)
	}
	if err := a.SwapView(t.Context(), viewOf(1, "a"), content.ViewRevision); err == nil {
		t.Error("view 1 was replaced by another view 1")
	}
	if err := a.SwapView(t.Context(), viewOf(2, "a", "b"), content.ViewRevision); err != nil {
		t.Fatal(err)
	}
	revision := a.awaitView(2).ViewRevision
	if v, err := a.ReadView(t.Context()); err != nil || v.Number != 2 {
		t.Errorf("%v, %v", v, err)
	}

	p.connect(anyServer(t).Endpoint())
	a.logs.await(t, "it has lost the parameters")
	if err := a.SwapView(t.Context(), viewOf(3, "a"), revision); !errors.Is(err, cluster.ErrViewChanged) {
		t.Errorf("into a wiped etcd: %v", err)
	}
	if number, err := a.Restore(t.Context(), a.awaitView(2).View, nil, nil, false); number != 3 || err != nil {
		t.Fatalf("view %d, %v", number, err)
	}
	restored := a.awaitView(3).View
	if part := restored.Partitions[0]; part.Term != 3 || len(part.Predecessors) != 1 || part.Predecessors[0].ID != "b" {
		t.Errorf("partition 0 of the restored view: %+v", part)
	}
}
