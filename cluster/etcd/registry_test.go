package etcd

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlimit/weir/cluster"
)

func TestAnnounce(t *testing.T) {
	t.Parallel()
	s, began := anyServer(t), time.Now()
	a, b := run(t, maxLeaseTTL, s.Endpoint()), run(t, 0, s.Endpoint())
	if got := a.awaitIDs(); got.View != nil || got.ViewRevision != 0 {
		t.Errorf("first content %+v", got)
	}
	a.Announce(node("a", 1))
	b.Announce(node("b", 1))
	b.awaitIDs("a", "b")
	if s := a.Status(); !s.Reachable || s.Alarm != "" || s.Renewed.Before(began) {
		t.Errorf("status %+v", s)
	}
	leaving := node("a", 1)
	leaving.State = cluster.Leaving
	a.Announce(leaving)
	b.await("a leaves", func(content cluster.RegistryContent) bool {
		return len(content.Nodes) == 2 && content.Nodes[0] == leaving
	})

	nodes, err := open(t, 0, s.Endpoint()).Nodes(t.Context())
	if want := []cluster.Node{leaving, node("b", 1)}; err != nil || !slices.Equal(nodes, want) {
		t.Errorf("nodes %v, %v", nodes, err)
	}
	a.cancel()
	b.awaitIDs("b") // although the lease would go on for minutes
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
		n.RulesHash = strings.Repeat("x", i%7) + "!"
		a.Announce(n)
	}
	b.await("the last", func(content cluster.RegistryContent) bool { return len(content.Nodes) == 1 && content.Nodes[0] == n })
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
	c := rawClient(t, s.Endpoint())
	lease := clientv3.LeaseID(0)
	awaitKey(t, c, a.keys.nodes+"a", func(kv *keyValue) bool {
		if kv != nil {
			lease = clientv3.LeaseID(kv.Lease)
		}
		return kv != nil
	})
	if ttl, err := c.TimeToLive(t.Context(), lease); err != nil || ttl.GrantedTTL != int64(shortTTL/time.Second) {
		t.Errorf("a lease of %+v, %v", ttl, err)
	}
	renewed := a.Status().Renewed
	p.cut()
	b.awaitIDs()
	if after := time.Since(renewed); renewed.IsZero() || after < shortTTL {
		t.Errorf("expired %v after a renewal", after)
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
	near.await("far to be gone", func(content cluster.RegistryContent) bool { return len(content.Nodes) == 1 })
	other := run(t, 0, s.Endpoint())
	next.Announce(node("near", 2))
	other.Announce(node("far", 5))
	err := near.awaitEnd()
	if want := `another node was started under this id: "near" at near:9090 is incarnation 2, this is 1`; !errors.Is(err, ErrSuperseded) || err.Error() != want {
		t.Errorf("error %q, not %q", err, want)
	}
	got := next.await("both successors", func(content cluster.RegistryContent) bool {
		return slices.Equal(idsOf(content), []string{"far", "near"}) && content.Nodes[0].Incarnation == 5 && content.Nodes[1].Incarnation == 2
	})
	p.connect(s.Endpoint())
	if err := far.awaitEnd(); !errors.Is(err, ErrSuperseded) {
		t.Error(err)
	}
	if nodes, err := next.Nodes(t.Context()); err != nil || !slices.Equal(nodes, got.Nodes) {
		t.Errorf("then %+v, %v", nodes, err)
	}
}

// TestLeaseSparesSuccessor has the node lease alone find out.
func TestLeaseSparesSuccessor(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a := open(t, 0, s.Endpoint())
	a.Announce(node("a", 1))
	k := newNodeLease(a.Registry)
	if err := k.step(t.Context()); err != nil {
		t.Fatal(err)
	}
	successor := mustJSON(t, node("a", 2))
	c := rawClient(t, s.Endpoint())
	put(t, c, a.keys.nodes+"a", successor)
	for name, disturb := range map[string]func(){
		"nudged":     func() { k.look = true },
		"announcing": func() { a.Announce(cluster.Node{ID: "a", Address: "a:9090", Incarnation: 1, State: cluster.Leaving}) },
		"lease lost": func() { k.lost() },
		"restarted":  func() { k = newNodeLease(a.Registry) },
	} {
		disturb()
		if err := k.step(t.Context()); !errors.Is(err, ErrSuperseded) {
			t.Errorf("%s: %v", name, err)
		}
		awaitKey(t, c, a.keys.nodes+"a", func(kv *keyValue) bool { return kv != nil && string(kv.Value) == successor })
	}
}

// TestSuccessorEndsLease restarts a node under its id while its old process lives on: that must
// not go on to renew a lease, by which it would hold itself for the one.
func TestSuccessorEndsLease(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	old, young := open(t, 0, s.Endpoint()), open(t, 0, s.Endpoint())
	old.Announce(node("a", 1))
	young.Announce(node("a", 2))
	before, after := newNodeLease(old.Registry), newNodeLease(young.Registry)
	for _, k := range []*nodeLease{before, after} {
		if err := k.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := before.renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if before.lease != 0 || !old.Status().Renewed.IsZero() {
		t.Error("the old process has renewed its lease")
	}
	if err := after.renew(t.Context()); err != nil || after.lease == 0 {
		t.Errorf("the new process has lost its lease: %v", err)
	}
}

// A node that is evicted loses its lease, and registers again if it lives.
func TestEvict(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	a, b := run(t, 0, s.Endpoint()), run(t, 0, s.Endpoint())
	a.Announce(node("a", 3))
	b.awaitIDs("a")
	c := rawClient(t, s.Endpoint())
	lease := func() (id int64) {
		awaitKey(t, c, a.keys.nodes+"a", func(kv *keyValue) bool {
			if kv != nil {
				id = kv.Lease
			}
			return kv != nil
		})
		return id
	}
	before := lease()
	for _, l := range []cluster.Life{{ID: "a", Incarnation: 2}, {ID: "none", Incarnation: 1}} {
		if err := b.Evict(t.Context(), l); err != nil || lease() != before {
			t.Errorf("evicting %v: %v, lease %d after %d", l, err, lease(), before)
		}
	}
	if err := b.Evict(t.Context(), cluster.Life{ID: "a", Incarnation: 3}); err != nil {
		t.Fatal(err)
	}
	b.await("its key is gone, or back", func(content cluster.RegistryContent) bool { return len(content.Nodes) == 0 || lease() != before })
	if ttl, err := c.TimeToLive(t.Context(), clientv3.LeaseID(before)); err != nil || ttl.TTL >= 0 {
		t.Errorf("its lease lives: %+v, %v", ttl, err)
	}
	b.awaitIDs("a")
	if after := lease(); after == before || a.logs.count("the etcd lease of this node has ended") != 1 {
		t.Errorf("lease %d after %d; log: %q", after, before, a.logs.all())
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
		b.await("a is back", func(content cluster.RegistryContent) bool {
			return len(content.Nodes) == 1 && content.Nodes[0] == node("a", 3)
		})
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

func TestWatchReportsCompaction(t *testing.T) {
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
