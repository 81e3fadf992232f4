package etcd

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/weirlimit/weir/cluster"
)

// After Restore both nodes believe an etcd again that has lost all, or some.
func TestRestore(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	a, b := pair(t, DefaultLeaseTTL, p.addr())
	if _, err := a.Restore(t.Context(), viewOf(1, "a", "b"), nil, nil, false); !errors.Is(err, ErrNotWiped) {
		t.Errorf("an etcd that has all: %v", err)
	}
	if _, err := a.SwapRules(t.Context(), []byte("rules"), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.SwapView(t.Context(), viewOf(5, "a", "b"), a.awaitView(1).ViewRevision); err != nil {
		t.Fatal(err)
	}
	a.awaitView(5)
	b.awaitView(5)
	params := a.Params()

	wiped := anyServer(t)
	p.connect(wiped.Endpoint())
	for _, n := range []*testNode{a, b} {
		n.logs.await(t, "it has lost the parameters")
	}
	good := viewOf(5, "a", "b")
	good.Members[1].Incarnation = 4
	for p := 1; p < len(good.Partitions); p += 2 {
		good.Partitions[p].Owner.Incarnation = 4
	}
	if number, err := a.Restore(t.Context(), good, []byte("rules"), []byte("tokens"), true); number != 6 || err != nil {
		t.Errorf("dry: view %d, %v", number, err)
	}
	raw := rawClient(t, wiped.Endpoint())
	if resp, err := raw.Get(t.Context(), a.keys.params); err != nil || resp.Count > 0 {
		t.Errorf("%v, %v: something was written", resp, err)
	}
	if number, err := a.Restore(t.Context(), good, []byte("rules"), []byte("tokens"), false); number != 6 || err != nil {
		t.Fatalf("view %d, %v", number, err)
	}
	for _, n := range []*testNode{a, b} {
		last := n.awaitView(6)
		n.logs.await(t, "view in etcd is good again")
		if string(last.Rules) != "rules" || string(last.Tokens) != "tokens" || n.Status().Alarm != "" || n.Status().Wiped {
			t.Errorf("%+v, rules %q", n.Status(), last.Rules)
		}
		for p := range good.Partitions {
			if last.View.Partitions[p].Owner != good.Partitions[p].Owner {
				t.Fatalf("partition %d is another than before", p)
			}
		}
	}
	for id, want := range map[string]uint64{"a": 2, "b": 5} {
		if got, err := b.NextIncarnation(t.Context(), id); got != want || err != nil {
			t.Errorf("next incarnation of %s: %d, %v, want %d", id, got, err, want)
		}
	}
	if err := b.SwapView(t.Context(), viewOf(7, "a"), b.awaitView(6).ViewRevision); err != nil {
		t.Error(err)
	}
	a.awaitView(7)
	if _, err := a.Restore(t.Context(), good, nil, nil, false); !errors.Is(err, ErrNotWiped) {
		t.Errorf("once more: %v", err)
	}

	// A backup has the parameters, and an older view.
	restored := anyServer(t)
	raw = rawClient(t, restored.Endpoint())
	put(t, raw, a.keys.params, string(params))
	put(t, raw, a.keys.view, string(encoded(t, viewOf(3, "a", "b"))))
	put(t, raw, a.keys.incarnations+"a", "1")
	p.connect(restored.Endpoint())
	for _, n := range []*testNode{a, b} {
		n.logs.await(t, "it has view 3 after view 7")
	}
	if number, err := b.Restore(t.Context(), viewOf(7, "a"), nil, nil, false); number != 8 || err != nil {
		t.Fatalf("view %d, %v", number, err)
	}
	for _, n := range []*testNode{a, b} {
		n.awaitView(8)
	}
}

// Another cluster is not overwritten.
func TestRestoreOverAnotherCluster(t *testing.T) {
	t.Parallel()
	p := newProxy(t, anyServer(t).Endpoint())
	a, _ := pair(t, DefaultLeaseTTL, p.addr())
	other := anyServer(t)
	value, err := json.Marshal(cluster.Params{Format: cluster.Format, Ring: smallRing, Secret: []byte("0123456789abcdef")})
	if err != nil {
		t.Fatal(err)
	}
	put(t, rawClient(t, other.Endpoint()), a.keys.params, string(value))
	p.connect(other.Endpoint())
	a.logs.await(t, "parameters of another cluster")
	const want = `restoring cluster "test": etcd has another cluster of this name: stop its nodes, and delete all keys under /weir/test/`
	if _, err := a.Restore(t.Context(), viewOf(1, "a", "b"), nil, nil, false); !errors.Is(err, ErrOtherCluster) || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// A view that etcd has lost is written again: its owners are predecessors of the restored one's.
func TestRestoredView(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	a := run(t, 0, p.addr())
	if _, err := a.Bootstrap(t.Context(), cluster.Params{Ring: smallRing}); err != nil {
		t.Fatal(err)
	}
	if err := a.SwapView(t.Context(), viewOf(1, "a", "b"), 0); err != nil {
		t.Fatal(err)
	}
	if err := a.SwapView(t.Context(), viewOf(2, "a", "b"), a.awaitView(1).ViewRevision); err != nil {
		t.Fatal(err)
	}
	revision := a.awaitView(2).ViewRevision

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
