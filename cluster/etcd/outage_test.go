package etcd

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster"
)

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pair runs two announced nodes with a view of both behind one proxy.
func pair(t *testing.T, ttl time.Duration, addr string) (a, b *testNode) {
	t.Helper()
	a, b = run(t, ttl, addr), run(t, ttl, addr)
	for _, n := range []*testNode{a, b} {
		if _, err := n.Bootstrap(t.Context(), cluster.Params{Ring: smallRing}); err != nil {
			t.Fatal(err)
		}
	}
	a.Announce(node("a", 1))
	b.Announce(node("b", 1))
	a.awaitIDs("a", "b")
	b.awaitIDs("a", "b")
	if err := a.SwapView(t.Context(), viewOf(1, "a", "b"), 0); err != nil {
		t.Fatal(err)
	}
	a.awaitView(1)
	b.awaitView(1)
	return a, b
}

// mark changes what node "a" says and waits until others see it: all content of before is then handed
// out.
func mark(n *testNode, text string, others ...*testNode) {
	n.t.Helper()
	marked := node("a", 1)
	marked.RulesHash = text
	n.Announce(marked)
	for _, o := range others {
		o.await("mark "+text, func(content cluster.RegistryContent) bool {
			return len(content.Nodes) > 0 && content.Nodes[0] == marked
		})
	}
}

// unbroken fails if content since the first with a view lacks any of it.
func (n *testNode) unbroken(since int) {
	n.t.Helper()
	for _, s := range n.history()[since:] {
		if s.View == nil || len(s.Nodes) != 2 {
			n.t.Errorf("handed out %+v", s)
		}
	}
}

func TestRestartOnSameDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, "127.0.0.1:0", dir)
	p := newProxy(t, s.Endpoint())
	a, b := pair(t, 3*time.Second, p.addr())
	nodes := []*testNode{a, b}
	before := make([]int, len(nodes))
	views := make([]cluster.RegistryContent, len(nodes))
	for i, n := range nodes {
		before[i] = len(n.history())
		views[i] = n.history()[before[i]-1]
	}

	began := time.Now()
	s.Close()
	if took := time.Since(began); took >= closeTimeout {
		t.Errorf("the server took %v to close", took) // and let leases expire meanwhile
	}
	for _, n := range nodes {
		n.logs.await(t, "etcd unreachable")
		if n.Reachable() || n.Status().Reachable || n.metric("weir_etcd_up") != 0 || n.metric("weir_etcd_failures_total") == 0 {
			t.Error("reachable while etcd is unreachable")
		}
	}
	if err := a.SwapView(t.Context(), viewOf(2, "a"), views[0].ViewRevision); err == nil || errors.Is(err, cluster.ErrViewChanged) {
		t.Errorf("swap while etcd is unreachable: %v", err)
	}
	s = startServer(t, "127.0.0.1:0", dir)
	t.Logf("away for %v, leases of %v", time.Since(began), a.ttl)
	p.connect(s.Endpoint())
	for _, n := range nodes {
		n.logs.await(t, "etcd reachable again")
	}
	mark(a, "1", a, b)
	for i, n := range nodes {
		n.unbroken(before[i] - 1)
		// The mark is the only change.
		if got := len(n.history()) - before[i]; got != 1 {
			t.Errorf("%d changes, not 1: %+v", got, n.history()[before[i]:])
		}
		last := n.history()[len(n.history())-1]
		if last.View != views[i].View || last.ViewRevision != views[i].ViewRevision {
			t.Errorf("view %+v, was %+v", last, views[i])
		}
		if !n.Reachable() || n.metric("weir_etcd_up") != 1 {
			t.Error("not reachable")
		}
		if got := n.metric("weir_etcd_leases_lost_total"); got != 0 {
			t.Errorf("%v leases lost: etcd keeps them while it is unreachable", got)
		}
		for _, line := range []string{"etcd unreachable", "etcd reachable again"} {
			if got := n.logs.count(line); got != 1 {
				t.Errorf("%q is logged %d times: %q", line, got, n.logs.all())
			}
		}
	}
	if err := b.SwapView(t.Context(), viewOf(2, "b"), views[1].ViewRevision); err != nil {
		t.Error(err)
	}
	a.awaitView(2)
}

// TestOutageLongerThanLease cuts one node off until its key has expired, while
// etcd forgets all that the node has not seen.
func TestOutageLongerThanLease(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	observer := run(t, 0, s.Endpoint())
	a, b := pair(t, shortTTL, p.addr())
	observer.awaitIDs("a", "b")
	revision := observer.awaitView(1).ViewRevision

	p.cut()
	observer.awaitIDs()
	for number := uint64(2); number <= 5; number++ {
		if err := observer.SwapView(t.Context(), viewOf(number, "a", "b"), revision); err != nil {
			t.Fatal(err)
		}
		revision = observer.awaitView(number).ViewRevision
	}
	c := rawClient(t, s.Endpoint())
	if _, err := c.Compact(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	a.logs.await(t, "etcd unreachable")
	began := time.Now()
	p.connect(s.Endpoint())
	observer.awaitIDs("a", "b")
	t.Logf("back after %v", time.Since(began))
	for _, n := range []*testNode{a, b} {
		n.awaitIDs("a", "b")
		if got := n.awaitView(5); got.ViewRevision != revision {
			t.Errorf("revision %d, not %d", got.ViewRevision, revision)
		}
		if got := n.metric("weir_etcd_leases_lost_total"); got != 1 {
			t.Errorf("%v leases lost", got)
		}
		if got := n.logs.count("the etcd lease of this node has ended"); got != 1 {
			t.Errorf("logged %d times: %q", got, n.logs.all())
		}
	}
}

// TestSilentEndpoint has one and then the other of two endpoints hang with its
// connections open. The watch is on one of them.
func TestSilentEndpoint(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	one, two := newProxy(t, s.Endpoint()), newProxy(t, s.Endpoint())
	a, writer := run(t, DefaultLeaseTTL, one.addr(), two.addr()), run(t, 0, s.Endpoint())
	a.Announce(node("a", 1))
	writer.awaitIDs("a")
	since := len(writer.history())
	revision := int64(0)
	for i, frozen := range []*proxy{one, two} {
		began := time.Now()
		number := uint64(i + 1)
		frozen.freeze()
		if err := writer.SwapView(t.Context(), viewOf(number, "a"), revision); err != nil {
			t.Fatal(err)
		}
		revision = a.awaitView(number).ViewRevision
		// At worst the watch is given up after 2 s, and the list fails twice.
		if lag := time.Since(began); lag > 8*time.Second {
			t.Errorf("view %d came after %v", number, lag)
		}
		frozen.reconnect(s.Endpoint())
	}
	if a.metric("weir_etcd_leases_lost_total") != 0 {
		t.Error("the lease was lost")
	}
	if got := a.logs.count("unreachable"); got != 0 {
		t.Errorf("log %q", a.logs.all())
	}
	for _, s := range writer.history()[since:] {
		if len(s.Nodes) != 1 {
			t.Error("the node's key was gone")
		}
	}
}

func TestWipedEtcd(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	a, b := pair(t, DefaultLeaseTTL, p.addr())
	if err := a.SwapView(t.Context(), viewOf(2, "a", "b"), a.awaitView(1).ViewRevision); err != nil {
		t.Fatal(err)
	}
	good := a.awaitView(2)
	b.awaitView(2)
	s.Close()

	// Nothing is left.
	s = anyServer(t)
	p.connect(s.Endpoint())
	for _, n := range []*testNode{a, b} {
		n.logs.await(t, "view in etcd refused")
		if got, want := n.Status().Alarm, "etcd was wiped: it has lost the parameters of this cluster"; got != want {
			t.Errorf("alarm %q, not %q", got, want)
		}
	}
	mark(a, "1", a, b)
	for _, n := range []*testNode{a, b} {
		n.awaitIDs("a", "b") // both registered again
	}
	for _, revision := range []int64{0, good.ViewRevision} {
		if err := a.SwapView(t.Context(), viewOf(3, "a"), revision); !errors.Is(err, cluster.ErrViewChanged) {
			t.Errorf("swap in a wiped etcd: %v", err)
		}
	}

	// Another cluster of the same name is founded there.
	stranger := run(t, 0, s.Endpoint())
	if _, err := stranger.Bootstrap(t.Context(), cluster.Params{Ring: smallRing}); err != nil {
		t.Fatal(err)
	}
	a.logs.await(t, "parameters of another cluster")
	if err := stranger.SwapView(t.Context(), viewOf(9, "a"), 0); err != nil {
		t.Fatal(err)
	}
	stranger.awaitView(9)
	mark(a, "2", a, b)

	for _, n := range []*testNode{a, b} {
		for _, s := range n.history() {
			if s.View != nil && s.View.Number > 2 {
				t.Errorf("handed out %+v", s)
			}
		}
		last := n.history()[len(n.history())-1]
		if last.View == nil || last.View.Number != 2 || last.ViewRevision != good.ViewRevision {
			t.Errorf("holds %+v", last)
		}
		if got := n.logs.count("view in etcd refused"); got != 2 { // one per reason
			t.Errorf("%d lines: %q", got, n.logs.all())
		}
	}
}
