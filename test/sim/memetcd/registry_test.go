package memetcd_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

var params = cluster.Params{Ring: ring.Params{Partitions: 64, ReplicationFactor: 10, Load: 1.25}, Secret: make([]byte, ring.SecretSize)}

// member is a registry that runs, and what it has last handed out.
type member struct {
	*etcd.Registry
	*script
	stop func() // ends Run, which takes the key away

	mu      sync.Mutex
	changed chan struct{}           // closed and replaced with every change; guarded by mu
	latest  cluster.RegistryContent // guarded by mu
}

func (p *script) member() *member {
	p.Helper()
	r, err := etcd.Open(p.Context(), etcd.Config{
		Endpoints: []string{p.system.endpoint()}, Cluster: "test", LeaseTTL: 2 * time.Second, Dial: p.system.dial,
	})
	if err != nil {
		p.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Registry: r, script: p, changed: make(chan struct{})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(ctx, m.update); err != nil {
			p.Error(err)
		}
	}()
	m.stop = sync.OnceFunc(func() { cancel(); <-ended; r.Close() })
	p.Cleanup(m.stop)
	return m
}

func (m *member) update(content cluster.RegistryContent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest = content
	close(m.changed)
	m.changed = make(chan struct{})
}

// await waits until content is ok, and notes it.
func (m *member) await(what string, ok func(cluster.RegistryContent) bool) {
	m.Helper()
	timeout := time.NewTimer(2 * patience)
	defer timeout.Stop()
	for {
		m.mu.Lock()
		s, changed := m.latest, m.changed
		m.mu.Unlock()
		if ok(s) {
			number := uint64(0)
			if s.View != nil {
				number = s.View.Number
			}
			m.note("%s: nodes %s, view %d, rules %q", what, ids(s), number, s.Rules)
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			m.Fatalf("%s: still not so: %+v", what, s)
		}
	}
}

func (m *member) awaitNodes(want string) {
	m.Helper()
	m.await("nodes", func(content cluster.RegistryContent) bool { return ids(content) == want })
}

func ids(content cluster.RegistryContent) string {
	var names []string
	for _, n := range content.Nodes {
		names = append(names, n.ID)
	}
	return strings.Join(names, ",")
}

func node(id string, incarnation uint64) cluster.Node {
	return cluster.Node{ID: id, Address: id + ":9090", Incarnation: incarnation, State: cluster.Ready}
}

func (p *script) view(number uint64, names ...string) *view.View {
	v := &view.View{Number: number, Electorate: view.Electorate{Changed: 1}}
	for _, id := range slices.Sorted(slices.Values(names)) {
		v.Members = append(v.Members, view.Member{Life: view.Life{ID: id, Incarnation: 1}, Address: id + ":9090"})
	}
	for i := range params.Ring.Partitions {
		v.Partitions = append(v.Partitions, view.Partition{Owner: v.Members[i%len(names)].Life, Term: 1})
	}
	return v
}

// pair returns two members that know each other and a first view.
func (p *script) pair() (a, b *member) {
	a, b = p.member(), p.member()
	for i, m := range []*member{a, b} {
		got, err := m.Bootstrap(p.Context(), params)
		p.note("bootstrap: %+v, %v", got, err)
		incarnation, err := m.NextIncarnation(p.Context(), "ab"[i:i+1])
		p.note("incarnation: %d, %v", incarnation, err)
	}
	a.Announce(node("a", 1))
	b.Announce(node("b", 1))
	a.awaitNodes("a,b")
	b.awaitNodes("a,b")
	p.note("swap: %v", a.SwapView(p.Context(), p.view(1, "a", "b"), 0))
	for _, m := range []*member{a, b} {
		m.await("view", func(content cluster.RegistryContent) bool { return content.View != nil && len(content.Nodes) == 2 })
	}
	return a, b
}

func (m *member) viewRevision() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest.ViewRevision
}

func registry(p *script) {
	a, b := p.pair()
	other := params
	other.Ring.Partitions = 128
	_, err := b.Bootstrap(p.Context(), other)
	p.note("another bootstrap: %v", err)
	again, err := b.NextIncarnation(p.Context(), "b")
	p.note("incarnation: %d, %v", again, err)

	p.note("too late: %v", b.SwapView(p.Context(), p.view(2, "b"), 0))
	p.note("swap: %v", b.SwapView(p.Context(), p.view(2, "b"), b.viewRevision()))
	a.await("view", func(content cluster.RegistryContent) bool { return content.View.Number == 2 })
	value, revision, err := a.ReadRules(p.Context())
	p.note("no rules: %q %d %v", value, revision, err)
	first, err := a.SwapRules(p.Context(), []byte("one"), 0)
	p.note("rules: %v %v", first > 0, err)
	late, err := b.SwapRules(p.Context(), []byte("two"), 0)
	p.note("too late: %d %v", late, err)
	_, err = b.SwapRules(p.Context(), []byte("two"), first)
	p.note("rules: %v", err)
	a.await("rules", func(content cluster.RegistryContent) bool { return string(content.Rules) == "two" })

	b.await("rules", func(content cluster.RegistryContent) bool { return string(content.Rules) == "two" })

	const key = "/weir/test/nodes/a"
	p.delete(key)
	p.note("put again: %v", p.comesBack(key))
	b.awaitNodes("a,b")
	b.stop()
	a.awaitNodes("a")
	nodes, err := a.Nodes(p.Context())
	p.note("nodes: %v %v", nodes, err)
}

// comesBack reports whether a key that was deleted is there again within patience.
func (p *script) comesBack(key string) bool {
	for began := time.Now(); time.Since(began) < patience; p.sleep(20 * time.Millisecond) {
		if resp, err := p.client.Get(p.Context(), key); err == nil && resp.Count == 1 {
			return true
		}
	}
	return false
}

func registryAfterOutage(p *script) {
	a, b := p.pair()
	p.system.stop()
	p.sleep(2500 * time.Millisecond) // longer than a lease
	p.note("swap while away: %v", errors.Is(a.SwapView(p.Context(), p.view(2, "a"), a.viewRevision()), cluster.ErrViewChanged))
	p.system.start(p.T)
	changed := node("a", 1)
	changed.RulesHash = "new"
	a.Announce(changed)
	b.await("back", func(content cluster.RegistryContent) bool { return slices.Contains(content.Nodes, changed) })
	p.note("alarm: %q, %v", a.Status().Alarm, a.Reachable())
}

func registryAfterWipe(p *script) {
	a, b := p.pair()
	p.system.stop()
	p.system.wipe(p.T)
	p.system.start(p.T)
	changed := node("a", 1)
	changed.RulesHash = "new"
	a.Announce(changed)
	b.await("back", func(content cluster.RegistryContent) bool {
		return slices.Contains(content.Nodes, changed) && ids(content) == "a,b"
	})
	p.note("alarm: %q", b.Status().Alarm)
	p.note("swap: %v", b.SwapView(p.Context(), p.view(2, "a"), b.viewRevision()))
}

// A registry in peace lists every five minutes, and not because its watch seems silent.
func TestWatchKeepalive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, metrics := newInMemory(t), prometheus.NewRegistry()
		r, err := etcd.Open(t.Context(), etcd.Config{Endpoints: []string{m.endpoint()}, Cluster: "test", Dial: m.dial, Metrics: metrics})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(context.Background(), func(cluster.RegistryContent) {}) }()
		r.Announce(node("a", 1))
		time.Sleep(time.Hour)
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		lists := make(map[string]float64)
		for _, f := range families {
			for _, metric := range f.GetMetric() {
				if f.GetName() == "weir_etcd_lists_total" {
					lists[metric.GetLabel()[0].GetValue()] = metric.GetCounter().GetValue()
				}
			}
		}
		if want := map[string]float64{"first": 1, "scheduled": 11, "cut": 0, "compacted": 0, "failed": 0}; !maps.Equal(lists, want) {
			t.Errorf("%v, want %v", lists, want)
		}
		r.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
