package etcd

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
)

// awaitRules waits until these rules are handed out.
func (n *testNode) awaitRules(text string) {
	n.t.Helper()
	n.await("rules "+text, func(content cluster.RegistryContent) bool { return string(content.Rules) == text })
}

// swap stores rules that no other node changes meanwhile.
func (n *testNode) swap(text string, revision int64) int64 {
	n.t.Helper()
	next, err := n.SwapRules(n.t.Context(), []byte(text), revision)
	if err != nil || next == 0 {
		n.t.Fatalf("swap to %q over %d: %d, %v", text, revision, next, err)
	}
	return next
}

func TestSwapRules(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, b := run(t, 0, s.Endpoint()), run(t, 0, s.Endpoint())
	a.awaitRules("")
	if value, revision, err := a.ReadRules(t.Context()); value != nil || revision != 0 || err != nil {
		t.Errorf("no rules: %q, %d, %v", value, revision, err)
	}
	if next, err := a.SwapRules(t.Context(), []byte("x"), 7); next != 0 || err != nil {
		t.Errorf("over rules that there are not: %d, %v", next, err)
	}
	revision := int64(0)
	for round := range 5 {
		values := []string{fmt.Sprint("a", round), fmt.Sprint("b", round)}
		next := make([]int64, 2)
		errs := make([]error, 2)
		var wait sync.WaitGroup
		for i, n := range []*testNode{a, b} {
			wait.Go(func() { next[i], errs[i] = n.SwapRules(t.Context(), []byte(values[i]), revision) })
		}
		wait.Wait()
		won := 0
		if next[won] == 0 {
			won = 1
		}
		if errs[0] != nil || errs[1] != nil || next[won] == 0 || next[1-won] != 0 {
			t.Fatalf("two writers: %v and %v", next, errs)
		}
		revision = next[won]
		for _, n := range []*testNode{a, b} {
			n.awaitRules(values[won])
			value, got, err := n.ReadRules(t.Context())
			if string(value) != values[won] || got != revision || err != nil {
				t.Errorf("read %q, %d, %v", value, got, err)
			}
		}
	}
	// A late reader finds what the watchers were told.
	run(t, 0, s.Endpoint()).awaitRules(string(a.history()[len(a.history())-1].Rules))
}

func TestSwapRulesBounds(t *testing.T) {
	t.Parallel()
	a := run(t, 0, anyServer(t).Endpoint())
	for size, want := range map[int]string{
		0:            `storing the rules of cluster "test": 0 bytes are not 1 to 1048576`,
		MaxRules + 1: `storing the rules of cluster "test": 1048577 bytes are not 1 to 1048576`,
	} {
		if next, err := a.SwapRules(t.Context(), make([]byte, size), 0); next != 0 || err == nil || err.Error() != want {
			t.Errorf("%d bytes: %d, %v, want %s", size, next, err, want)
		}
	}
	a.swap(strings.Repeat("x", MaxRules), 0) // which etcd takes
	a.awaitRules(strings.Repeat("x", MaxRules))
}

// A key that was deleted shows as no rules. The reader decides what that
// means.
func TestDeletedRules(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a := run(t, 0, s.Endpoint())
	revision := a.swap("one", 0)
	a.awaitRules("one")
	if _, err := rawClient(t, s.Endpoint()).Delete(t.Context(), a.keys.rules); err != nil {
		t.Fatal(err)
	}
	a.awaitRules("")
	if next, err := a.SwapRules(t.Context(), []byte("two"), revision); next != 0 || err != nil {
		t.Errorf("over the deleted ones: %d, %v", next, err)
	}
	a.swap("two", 0)
	a.awaitRules("two")
}

// The test takes about 10 s of real time: a real etcd goes away and comes back, a call waits 2 s for it, and its client
// waits for longer after each failed connection. etcd has no virtual clock.
func TestRulesSurviveOutage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServer(t, "127.0.0.1:0", dir)
	p := newProxy(t, s.Endpoint())
	a, b := pair(t, DefaultLeaseTTL, p.addr())
	revision := a.swap("one", 0)
	b.awaitRules("one")
	since := len(b.history())
	s.Close()
	b.logs.await(t, "etcd unreachable")
	var wait sync.WaitGroup
	var errs [2]error
	wait.Go(func() { _, _, errs[0] = a.ReadRules(t.Context()) })
	wait.Go(func() { _, errs[1] = a.SwapRules(t.Context(), []byte("two"), revision) })
	wait.Wait()
	for _, err := range errs {
		if err == nil || !strings.HasSuffix(err.Error(), "etcd at "+p.addr()+": no answer in 2s") {
			t.Errorf("while etcd is unreachable: %v", err)
		}
	}
	s = startServer(t, "127.0.0.1:0", dir)
	p.connect(s.Endpoint())
	b.logs.await(t, "etcd reachable again")
	a.swap("two", revision)
	b.awaitRules("two")
	for _, s := range b.history()[since:] {
		if len(s.Rules) == 0 {
			t.Error("the rules were gone")
		}
	}
}

func TestRulesInWipedEtcd(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	a, b := pair(t, DefaultLeaseTTL, p.addr())
	revision := a.swap("good", 0)
	a.awaitRules("good")
	b.awaitRules("good")
	s.Close()
	s = anyServer(t)
	p.connect(s.Endpoint())
	want := `storing the rules of cluster "test": etcd was wiped: it has lost the parameters of this cluster`
	// Even before the watch has seen it, nothing is stored there.
	for _, expected := range []int64{0, revision} {
		if next, err := a.SwapRules(t.Context(), []byte("new"), expected); next != 0 || err == nil || err.Error() != want {
			t.Errorf("over %d: %d, %v", expected, next, err)
		}
	}
	for _, n := range []*testNode{a, b} {
		n.logs.await(t, "view in etcd refused")
	}
	if _, err := a.SwapRules(t.Context(), []byte("new"), 0); err == nil || err.Error() != want {
		t.Errorf("after the watch has seen it: %v", err)
	}
	stranger := run(t, 0, s.Endpoint())
	stranger.swap("other", 0)
	mark(a, "1", a, b)
	for _, n := range []*testNode{a, b} {
		last := n.history()[len(n.history())-1]
		if string(last.Rules) != "good" {
			t.Errorf("a wiped etcd has changed the rules to %q", last.Rules)
		}
	}
}

// While the view lies behind what was seen, so may the rules.
func TestRulesInRestoredEtcd(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, _ := pair(t, DefaultLeaseTTL, s.Endpoint())
	old, err := view.Marshal(viewOf(1, "a", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.SwapView(t.Context(), viewOf(2, "a", "b"), a.awaitView(1).ViewRevision); err != nil {
		t.Fatal(err)
	}
	a.awaitView(2)
	revision := a.swap("good", 0)
	a.awaitRules("good")
	c := rawClient(t, s.Endpoint())
	put(t, c, a.keys.view, string(old))
	a.logs.await(t, "it has view 1 after view 2")
	want := `storing the rules of cluster "test": etcd was wiped or restored: it has view 1 after view 2`
	if next, err := a.SwapRules(t.Context(), []byte("new"), revision); next != 0 || err == nil || err.Error() != want {
		t.Errorf("%d, %v, want %s", next, err, want)
	}
	put(t, c, a.keys.rules, "old")
	mark(a, "1", a)
	if last := a.history()[len(a.history())-1]; string(last.Rules) != "good" {
		t.Errorf("an etcd that was restored has changed the rules to %q", last.Rules)
	}
}
