package etcd

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
)

func TestAnnounce(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, b := run(t, 0, s.Endpoint()), run(t, 0, s.Endpoint())
	if got := a.awaitIDs(); got.View != nil || got.ViewRevision != 0 {
		t.Errorf("first snapshot %+v", got)
	}
	a.Announce(node("a", 1))
	b.Announce(node("b", 1))
	b.awaitIDs("a", "b")
	if s := a.Status(); !s.Reachable || s.Alarm != "" || time.Since(s.Renewed) > 2*time.Second {
		t.Errorf("status %+v", s)
	}
	leaving := node("a", 1)
	leaving.State = cluster.Leaving
	a.Announce(leaving)
	b.await("a leaves", func(s cluster.Snapshot) bool { return len(s.Nodes) == 2 && s.Nodes[0] == leaving })

	nodes, err := open(t, 0, s.Endpoint()).Nodes(t.Context())
	if want := []cluster.Node{leaving, node("b", 1)}; err != nil || !slices.Equal(nodes, want) {
		t.Errorf("nodes %v, %v", nodes, err)
	}
	began := time.Now()
	a.cancel()
	b.awaitIDs("b")
	if took := time.Since(began); took > time.Second {
		t.Errorf("took %v to disappear", took)
	}
	if err := a.awaitEnd(); err != nil {
		t.Error(err)
	}
	if s := a.Status(); !s.Renewed.IsZero() {
		t.Errorf("status after the end %+v", s)
	}
	b.Close() // ends Run
	if err := b.awaitEnd(); err != nil {
		t.Error(err)
	}
}

func TestAnnounceBurst(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, b := run(t, 0, s.Endpoint()), run(t, 0, s.Endpoint())
	var n cluster.Node
	for i := range 1000 {
		n = node("a", 1)
		n.RuleRevision = strings.Repeat("x", i%7) + "!"
		a.Announce(n)
	}
	b.await("the last", func(s cluster.Snapshot) bool { return len(s.Nodes) == 1 && s.Nodes[0] == n })
	if got := len(b.history()); got > 20 {
		t.Errorf("%d puts", got)
	}
}

func TestAnnounceRefusals(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a := run(t, 0, s.Endpoint())
	a.Announce(node("a/b", 1))
	if got := a.logs.count("node cannot be announced"); got != 1 {
		t.Errorf("log %q", a.logs.all())
	}
	// etcd is full: it answers, but takes nothing.
	c := rawClient(t, s.Endpoint())
	members, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alarm := &etcdserverpb.AlarmRequest{MemberID: members.Members[0].ID, Alarm: etcdserverpb.AlarmType_NOSPACE}
	maintenance := clientv3.RetryMaintenanceClient(c, c.ActiveConnection())
	alarm.Action = etcdserverpb.AlarmRequest_ACTIVATE
	if _, err := maintenance.Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	a.Announce(node("a", 1))
	a.logs.await(t, "etcd refuses to register this node error=etcdserver: mvcc: database space exceeded")
	alarm.Action = etcdserverpb.AlarmRequest_DEACTIVATE
	if _, err := maintenance.Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	a.awaitIDs("a")
	if got := a.logs.count("etcd refuses"); got != 1 || !a.Reachable() {
		t.Errorf("log %q", a.logs.all())
	}
}

func TestDeadNodeExpires(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	a, b := run(t, shortTTL, p.addr()), run(t, 0, s.Endpoint())
	a.Announce(node("a", 1))
	b.awaitIDs("a")
	began := time.Now()
	p.cut()
	b.awaitIDs()
	// etcd looks for ended leases every 500 ms.
	if took := time.Since(began); took < shortTTL/2 || took > shortTTL+3*time.Second {
		t.Errorf("expired after %v", took)
	}
}

func TestSwapView(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, b := run(t, 0, s.Endpoint()), run(t, 0, s.Endpoint())
	for _, n := range []*testNode{a, b} {
		if _, err := n.Bootstrap(t.Context(), cluster.Params{Ring: smallRing}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.SwapView(t.Context(), view(t, 1, "a"), 7); !errors.Is(err, cluster.ErrViewChanged) {
		t.Errorf("a view over one that there is not: %v", err)
	}
	revision := int64(0)
	for number := uint64(1); number <= 5; number++ {
		errs := make([]error, 2)
		var wait sync.WaitGroup
		for i, n := range []*testNode{a, b} {
			wait.Go(func() { errs[i] = n.SwapView(t.Context(), view(t, number, "a", "b"), revision) })
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
	if err := newcomer.SwapView(t.Context(), view(t, 0, "a"), revision); err == nil || !strings.HasSuffix(err.Error(), "views are numbered from 1") {
		t.Errorf("view 0: %v", err)
	}
	for number := uint64(1); number <= 5; number++ {
		err := newcomer.SwapView(t.Context(), view(t, number, "a"), revision)
		if want := `of cluster "test": the stored view has number 5`; err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("view %d over 5: %v", number, err)
		}
	}
	if err := newcomer.SwapView(t.Context(), view(t, 6, "a"), revision); err != nil {
		t.Error(err)
	}
}

func TestSuperseded(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	near, far, next := run(t, 0, s.Endpoint()), run(t, shortTTL, p.addr()), run(t, 0, s.Endpoint())
	near.Announce(node("near", 1))
	far.Announce(node("far", 1))
	next.awaitIDs("far", "near")

	// One that listens is told by its watch; one that was away finds out when it
	// registers again.
	p.cut()
	next.awaitIDs("near")
	near.await("far to be gone", func(s cluster.Snapshot) bool { return len(s.Nodes) == 1 })
	other := run(t, 0, s.Endpoint())
	next.Announce(node("near", 2))
	other.Announce(node("far", 5))
	err := near.awaitEnd()
	if want := `another node was started under this id: "near" at near:9090 is incarnation 2, this is 1`; !errors.Is(err, ErrSuperseded) || err.Error() != want {
		t.Errorf("error %q, not %q", err, want)
	}
	got := next.awaitIDs("far", "near")
	if got.Nodes[0].Incarnation != 5 || got.Nodes[1].Incarnation != 2 {
		t.Errorf("nodes %+v", got.Nodes)
	}
	p.connect(s.Endpoint())
	if err := far.awaitEnd(); !errors.Is(err, ErrSuperseded) {
		t.Error(err)
	}
	if nodes, err := next.Nodes(t.Context()); err != nil || !slices.Equal(nodes, got.Nodes) {
		t.Errorf("then %+v, %v", nodes, err)
	}
}

func TestStolenKeyIsPutBack(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, b := run(t, 0, s.Endpoint()), run(t, 0, s.Endpoint())
	a.Announce(node("a", 3))
	b.awaitIDs("a")
	c := rawClient(t, s.Endpoint())
	if _, err := c.Delete(t.Context(), a.keys.nodes+"a"); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"", "rubbish", `{"id":"a","address":"old:1","incarnation":2,"state":"ready"}`} {
		if value != "" {
			put(t, c, a.keys.nodes+"a", value)
		}
		awaitKey(t, c, a.keys.nodes+"a", func(kv *keyValue) bool { return kv != nil && kv.Lease != 0 })
		b.await("a is back", func(s cluster.Snapshot) bool { return len(s.Nodes) == 1 && s.Nodes[0] == node("a", 3) })
	}
}

// awaitKey waits until key, nil if absent, is ok.
func awaitKey(t *testing.T, c *clientv3.Client, key string, ok func(*keyValue) bool) {
	t.Helper()
	ctx := t.Context()
	resp, err := c.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var kv *keyValue
	if len(resp.Kvs) > 0 {
		kv = resp.Kvs[0]
	}
	watch := c.Watch(ctx, key, clientv3.WithRev(resp.Header.Revision+1))
	timeout := time.After(patience)
	for !ok(kv) {
		select {
		case w := <-watch:
			for _, ev := range w.Events {
				if kv = ev.Kv; ev.Type == clientv3.EventTypeDelete {
					kv = nil
				}
			}
		case <-timeout:
			t.Fatalf("%s is still %v", key, kv)
		}
	}
}

func TestMalformedContent(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	c := rawClient(t, s.Endpoint())
	a := run(t, 0, s.Endpoint())
	a.Announce(node("a", 1))
	if err := a.SwapView(t.Context(), view(t, 1, "a"), 0); err != nil {
		t.Fatal(err)
	}
	first := a.awaitView(1)
	a.awaitIDs("a")

	bad := []string{"", "{", "null", `{"id":"other","address":"x:1","incarnation":1,"state":"ready"}`, `{"id":"bad","incarnation":1,"state":"ready"}`, strings.Repeat("x", 1<<20)}
	for i, value := range bad {
		put(t, c, a.keys.nodes+"bad", value)
		put(t, c, a.keys.nodes+"bad", value) // the same again is not worth a line
		put(t, c, a.keys.nodes+"mark", mustJSON(t, node("mark", uint64(i+1))))
		a.await("mark", func(s cluster.Snapshot) bool { return len(s.Nodes) == 2 && s.Nodes[1] == node("mark", uint64(i+1)) })
		if got := a.logs.count("node in etcd ignored"); got != i+1 {
			t.Errorf("%d lines after %d bad values: %q", got, i+1, a.logs.all())
		}
	}

	good, err := cluster.MarshalView(view(t, 2, "a"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := strings.Replace(string(good), `"a:9090"`, `"x:9090"`, 1)
	revision := put(t, c, a.keys.view, damaged)
	got := a.await("damage", func(s cluster.Snapshot) bool { return s.ViewRevision == revision })
	if got.View != first.View {
		t.Errorf("damaged view %+v is handed out", got.View)
	}
	if got := a.Status().Alarm; !strings.HasPrefix(got, "etcd has a damaged view: view 2: checksum") {
		t.Errorf("alarm %q", got)
	}
	if a.metric("weir_etcd_alarm") != 1 {
		t.Error("metric does not show the alarm")
	}
	if err := open(t, 0, s.Endpoint()).SwapView(t.Context(), view(t, 9, "a"), revision); err == nil || !strings.Contains(err.Error(), "the stored view is damaged") {
		t.Errorf("a newcomer repairs: %v", err)
	}
	if err := a.SwapView(t.Context(), view(t, 2, "a"), revision); err == nil || !strings.Contains(err.Error(), "is damaged and has number 2") {
		t.Errorf("repair with the same number: %v", err)
	}
	if err := a.SwapView(t.Context(), view(t, 3, "a"), revision); err != nil {
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

func TestWatchTellsOfCompaction(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	c := rawClient(t, s.Endpoint())
	r := open(t, 0, s.Endpoint())
	put(t, c, r.keys.view, "1")
	if _, err := c.Compact(t.Context(), put(t, c, r.keys.view, "2")); err != nil {
		t.Fatal(err)
	}
	err := r.watchFrom(t.Context(), 1, func(resp *etcdserverpb.WatchResponse) error {
		if len(resp.Events) > 0 {
			t.Errorf("events %v", resp.Events)
		}
		return nil
	})
	if !errors.Is(err, errCompacted) || whyList(err) != listCompacted {
		t.Errorf("the watch ended with %v", err)
	}
}
