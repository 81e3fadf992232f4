package etcd

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

func TestSwapView(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, b := run(t, 0, s.Endpoint()), run(t, 0, s.Endpoint())
	for _, n := range []*testNode{a, b} {
		if _, err := n.Bootstrap(t.Context(), cluster.Params{Ring: smallRing}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.SwapView(t.Context(), viewOf(1, "a"), 7); !errors.Is(err, cluster.ErrViewChanged) {
		t.Errorf("a view over one that there is not: %v", err)
	}
	revision := int64(0)
	for number := uint64(1); number <= 5; number++ {
		errs := make([]error, 2)
		var wait sync.WaitGroup
		for i, n := range []*testNode{a, b} {
			wait.Go(func() { errs[i] = n.SwapView(t.Context(), viewOf(number, "a", "b"), revision) })
		}
		wait.Wait()
		won, lost := errs[0], errs[1]
		if won != nil {
			won, lost = lost, won
		}
		if won != nil || !errors.Is(lost, cluster.ErrViewChanged) {
			t.Fatalf("two writers: %v and %v", errs[0], errs[1])
		}
		revision = a.awaitView(number).ViewRevision
		if got := b.awaitView(number); got.ViewRevision != revision || got.View.Members[1].ID != "b" {
			t.Errorf("a and b disagree: %+v", got)
		}
	}
	for _, n := range []*testNode{a, b} {
		if got := n.logs.count("view in etcd refused"); got != 0 {
			t.Errorf("false alarm: %q", n.logs.all())
		}
	}
	newcomer := open(t, 0, s.Endpoint()) // has seen nothing
	if err := newcomer.SwapView(t.Context(), viewOf(0, "a"), revision); err == nil || !strings.HasSuffix(err.Error(), "number: 0 is not between 1 and 9007199254740991") {
		t.Errorf("view 0: %v", err)
	}
	for number := uint64(1); number <= 5; number++ {
		err := newcomer.SwapView(t.Context(), viewOf(number, "a"), revision)
		if want := `of cluster "test": the stored view has number 5`; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("view %d over 5: %v", number, err)
		}
	}
	if err := newcomer.SwapView(t.Context(), viewOf(6, "a"), revision); err != nil {
		t.Error(err)
	}
}

// A view that was stored is read, and routed by.
func TestReadView(t *testing.T) {
	t.Parallel()
	a := run(t, 0, anyServer(t).Endpoint())
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
	a.awaitView(2)
	if v, err := a.ReadView(t.Context()); err != nil || v.Number != 2 {
		t.Errorf("%v, %v", v, err)
	}
}

func TestMalformedContent(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	c := rawClient(t, s.Endpoint())
	a := run(t, 0, s.Endpoint())
	a.Announce(node("a", 1))
	if err := a.SwapView(t.Context(), viewOf(1, "a"), 0); err != nil {
		t.Fatal(err)
	}
	first := a.awaitView(1)
	a.awaitIDs("a")

	bad := []string{"", "{", "null", `{"id":"other","address":"x:1","incarnation":1,"state":"ready"}`, `{"id":"bad","incarnation":1,"state":"ready"}`, strings.Repeat("x", 1<<20)}
	for i, value := range bad {
		put(t, c, a.keys.nodes+"bad", value)
		put(t, c, a.keys.nodes+"bad", value) // the same again is not worth a line
		put(t, c, a.keys.nodes+"mark", mustJSON(t, node("mark", uint64(i+1))))
		a.await("mark", func(content cluster.RegistryContent) bool {
			return len(content.Nodes) == 2 && content.Nodes[1] == node("mark", uint64(i+1))
		})
		if got := a.logs.count("node in etcd ignored"); got != i+1 {
			t.Errorf("%d lines after %d bad values: %q", got, i+1, a.logs.all())
		}
	}

	good, err := view.Marshal(viewOf(2, "a"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(good), `"a:9090"`, `"x:9090"`, 1)
	revision := put(t, c, a.keys.view, damaged)
	got := a.await("damage", func(content cluster.RegistryContent) bool { return content.ViewRevision == revision })
	if got.View != first.View {
		t.Errorf("damaged view %+v is handed out", got.View)
	}
	if got := a.Status().Alarm; !strings.HasPrefix(got, "etcd has a damaged view: view 2: checksum") {
		t.Errorf("alarm %q", got)
	}
	if a.metric("weir_etcd_alarm") != 1 {
		t.Error("metric does not show the alarm")
	}
	if err := open(t, 0, s.Endpoint()).SwapView(t.Context(), viewOf(9, "a"), revision); err == nil || !strings.Contains(err.Error(), "the stored view is damaged") {
		t.Errorf("a newcomer repairs: %v", err)
	}
	if err := a.SwapView(t.Context(), viewOf(2, "a"), revision); err == nil || !strings.Contains(err.Error(), "is damaged and has number 2") {
		t.Errorf("repair with the same number: %v", err)
	}
	if err := a.SwapView(t.Context(), viewOf(3, "a"), revision); err != nil {
		t.Errorf("repair: %v", err)
	}
	a.awaitView(3)
	if got := a.Status().Alarm; got != "" || a.metric("weir_etcd_alarm") != 0 {
		t.Errorf("alarm %q after the repair", got)
	}
	if got := a.logs.count("view in etcd refused"); got != 1 {
		t.Errorf("%d lines: %q", got, a.logs.all())
	}
}

// TestOlderView has etcd come back from an old backup, and then right.
func TestOlderView(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	c := rawClient(t, s.Endpoint())
	a := run(t, 0, s.Endpoint())
	a.awaitIDs()
	a.Announce(node("a", 1))
	a.awaitIDs("a")
	raw := make([]string, 6)
	for i := 1; i < len(raw); i++ {
		b, err := view.Marshal(viewOf(uint64(i), "a"))
		if err != nil {
			t.Fatal(err)
		}
		raw[i] = string(b)
	}
	put(t, c, a.keys.view, raw[4])
	good := a.awaitView(4)

	put(t, c, a.keys.view, raw[3])
	a.logs.await(t, "it has view 3 after view 4")
	other, err := view.Marshal(viewOf(4, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	put(t, c, a.keys.view, string(other))
	a.logs.await(t, "it has another view 4")
	put(t, c, a.keys.view, strings.Replace(raw[1], `"number":1`, `"number":0`, 1))
	a.logs.await(t, "damaged view: view 0: checksum is")
	if _, err := c.Delete(t.Context(), a.keys.view); err != nil {
		t.Fatal(err)
	}
	a.logs.await(t, "it has lost view 4")
	if err := a.SwapView(t.Context(), viewOf(5, "a"), 0); !errors.Is(err, cluster.ErrViewChanged) {
		t.Errorf("swap: %v", err)
	}
	mark(a, "1", a)
	if last := a.history()[len(a.history())-1]; last.View != good.View {
		t.Errorf("holds %+v", last)
	}

	// The same view at another revision: to be handed out for the revision.
	revision := put(t, c, a.keys.view, raw[4])
	a.await("revision", func(content cluster.RegistryContent) bool { return content.ViewRevision == revision })
	if last := a.history()[len(a.history())-1]; last.View != good.View || a.Status().Alarm != "" {
		t.Errorf("holds %+v, alarm %q", last, a.Status().Alarm)
	}
	if err := a.SwapView(t.Context(), viewOf(5, "a"), revision); err != nil {
		t.Error(err)
	}
	a.awaitView(5)
}

// A view that another version of this software has written raises an alarm that says what to do. No node writes over it.
func TestViewOfAnotherVersion(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a := run(t, 0, s.Endpoint())
	if err := a.SwapView(t.Context(), viewOf(1, "a"), 0); err != nil {
		t.Fatal(err)
	}
	first := a.awaitView(1)
	good, err := view.Marshal(viewOf(2, "a"))
	if err != nil {
		t.Fatal(err)
	}
	c := rawClient(t, s.Endpoint())
	for version, want := range map[string]string{`{"version":3,`: "a newer version of weir has written it", `{`: "an older version of weir has written it"} {
		revision := put(t, c, a.keys.view, strings.Replace(string(good), `{"version":2,`, version, 1))
		put(t, c, a.keys.nodes+"mark", mustJSON(t, node("mark", uint64(revision))))
		got := a.await("mark", func(content cluster.RegistryContent) bool {
			return len(content.Nodes) == 1 && content.Nodes[0].Incarnation == uint64(revision)
		})
		if alarm := a.Status().Alarm; got.View != first.View || !strings.HasPrefix(alarm, "etcd has a view that this node cannot read: view 2 is of version") || !strings.Contains(alarm, want) || a.Status().Wiped {
			t.Errorf("%s: view %+v, alarm %q", version, got.View, alarm)
		}
		for _, over := range []int64{got.ViewRevision, revision} {
			if err := a.SwapView(t.Context(), viewOf(3, "a"), over); err == nil {
				t.Fatalf("%s: it is written over at revision %d", version, over)
			}
		}
		if err := a.SwapView(t.Context(), viewOf(3, "a"), revision); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", version, err)
		}
	}
}
