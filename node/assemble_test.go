package node

import (
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// testOptions are those of a node on free ports with an etcd of its own.
func testOptions(t *testing.T) Options {
	return Options{ID: "a", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", EtcdListen: "127.0.0.1:0", DataDir: t.TempDir()}
}

// occupied listens on a free port until the test ends.
func occupied(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// freed returns an address on which nothing listens.
func freed(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", quietAddress())
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // nothing has connected
	return l.Addr().String()
}

// If any step fails, the resources of the steps before it are released: both ports, the etcd's port and its
// directory.
func TestBuildThatFailsLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	taken := occupied(t).Addr().String()
	for name, tc := range map[string]struct {
		breaks func(*testing.T, *Options)
		want   string
	}{
		"invalid":      {func(_ *testing.T, o *Options) { o.CounterMemory = -1 }, "counter-memory: -1B"},
		"invalid host": {func(_ *testing.T, o *Options) { o.GRPC = "0.0.0.0:0" }, "grpc: 0.0.0.0:0 is reachable"},
		"port of HTTP": {func(_ *testing.T, o *Options) { o.HTTP = taken }, "http: "},
		"admin port":   {func(_ *testing.T, o *Options) { o.Admin = taken }, "admin: "},
		"rules":        {func(_ *testing.T, o *Options) { o.Rules = "/no/such/rules.yaml" }, "/no/such/rules.yaml"},
		"port of etcd": {func(_ *testing.T, o *Options) { o.EtcdListen = taken }, "etcd: listen on " + taken},
		"id":           {func(t *testing.T, o *Options) { take(t, o, o.ID) }, `id: "a" is taken by a node that runs at 127.0.0.1:`},
		"address": {func(t *testing.T, o *Options) { o.Advertise = take(t, o, "b") },
			` is taken by a node that runs: "b"; give this one an address of its own with --advertise`},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions(t)
			opts.GRPC, opts.HTTP, opts.EtcdListen = freed(t), freed(t), freed(t)
			good := opts
			tc.breaks(t, &opts)
			if _, err := build(t.Context(), Network{}, opts, quiet()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("%v, want %s", err, tc.want)
			}
			for _, address := range []string{good.GRPC, good.HTTP} {
				l, err := net.Listen("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				_ = l.Close()
			}
			s, err := etcd.StartServer(t.Context(), etcd.ServerConfig{Listen: good.EtcdListen, Dir: filepath.Join(good.DataDir, "etcd")})
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
		})
	}
}

// take makes o's etcd hold the key of another node of the same cluster that runs under that id, and returns
// its address.
func take(t *testing.T, o *Options, id string) (address string) {
	secret := cluster.Params{Format: cluster.Format, Secret: make([]byte, ring.SecretSize)}
	bootstrap := func(s *etcd.Server) *etcd.Registry {
		r, err := etcd.Open(t.Context(), etcd.Config{Endpoints: []string{s.Endpoint()}, Cluster: "default", Logger: quiet()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Bootstrap(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		return r
	}
	elsewhere := testOptions(t)
	there := etcdAt(t, "127.0.0.1:0", t.TempDir())
	bootstrap(there).Close()
	elsewhere.ID, elsewhere.Etcd = id, []string{there.Endpoint()}
	other, _, _ := start(t, elsewhere)
	s, err := etcd.StartServer(t.Context(), etcd.ServerConfig{Listen: o.EtcdListen, Dir: filepath.Join(o.DataDir, "etcd")})
	if err != nil {
		t.Fatal(err)
	}
	r := bootstrap(s)
	announced := make(chan struct{})
	seen := sync.OnceFunc(func() { close(announced) })
	r.Announce(cluster.Node{ID: id, Address: other.GRPC, Incarnation: 1, State: cluster.Ready})
	go func() {
		_ = r.Run(t.Context(), func(content cluster.RegistryContent) {
			if len(content.Nodes) > 0 {
				seen()
			}
		})
	}()
	<-announced
	s.Close() // before r would take the key away
	r.Close()
	return other.GRPC
}

// Every option reaches the part that it is for.
func TestBuildUsesItsOptions(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.GRPC, opts.Insecure, opts.Advertise = "0.0.0.0:0", true, "weir.example:9090"
	opts.Cluster, opts.CounterMemory, opts.EtcdListen = "shop", minCounterMemory, freed(t)
	opts.Rules = filepath.Join(t.TempDir(), "rules.yaml")
	const rules = "domain: shop\nrules: [{id: r, limits: [{limit: 1, window: 1h}]}]\n"
	if err := os.WriteFile(opts.Rules, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := build(t.Context(), Network{}, opts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	got := n.info()
	got.Reloader, got.Parts = nil, nil
	if want := (Info{
		ID: "a", GRPC: n.grpcListener.Addr().String(), HTTP: n.httpListener.Addr().String(),
		Etcd: opts.EtcdListen, EmbeddedEtcd: true, Rules: 1, RulesPath: opts.Rules,
	}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := n.Self(); got.ID != "a" || got.Address != opts.Advertise || got.Incarnation != 1 {
		t.Errorf("%+v", got)
	}
	if got := n.registry.RulesKey(); got != "/weir/shop/rules" {
		t.Errorf("the cluster's rules are at %s", got)
	}
	if _, err := os.Stat(filepath.Join(opts.DataDir, "etcd")); err != nil {
		t.Error(err)
	}
	for i := range uint64(minCounterMemory / 20) {
		limit := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 1, Window: 1 << 40}
		n.shard.Decide([]shard.Group{{Ungated: true, Takes: []shard.Take{{Key: ring.Key{Hi: i * (math.MaxUint64 / minCounterMemory), Lo: i * 2654435769}, Limit: limit, Cost: 1}}}})
	}
	if got := n.Counters(); got < minCounterMemory/64 || got > minCounterMemory/32 {
		t.Errorf("%d counters in %v", got, opts.CounterMemory)
	}
}

func TestInfoNamesDescriptors(t *testing.T) {
	const descriptors, rule = "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5}}]\n",
		"domain: default\nrules: [{id: r, limits: [{limit: 1, window: 1h}]}]\n"
	for text, want := range map[string]bool{descriptors: true, rule: false, rule + "---\n" + descriptors: false, "domain: default\nrules: []\n": false} {
		set, err := rules.Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		n := &node{rules: fixedRules{set: set}}
		if got := n.info().Descriptors; got != want {
			t.Errorf("%v, want %v:\n%s", got, want, text)
		}
	}
}

// fixedRules are rules that stay.
type fixedRules struct {
	ruleSource
	set *rules.Set
}

func (f fixedRules) Set() *rules.Set { return f.set }
