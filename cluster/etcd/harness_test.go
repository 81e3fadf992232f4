package etcd

import (
	"bytes"
	"context"
	"flag"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// This is the harness of the tests of Registry: a real etcd in this process, and registries that record what they hear. All is in
// real time, as etcd has no other clock. So a test waits for events only, and tests run in parallel.
//
//	s := anyServer(t)                       // an etcd on a free port, with a directory of the test
//	a := run(t, 0, s.Endpoint())            // a registry whose Run is under way; 0 is the default TTL
//	a.awaitIDs("n1", "n2")                  // until the newest content lists these nodes
//	a.logs.await(t, "etcd unreachable")     // until it has logged this
//
// open is run without Run. rawClient changes etcd behind the registry's back, and newProxy (harness_proxy_test.go) cuts the way between
// them. record fails the test if the same content comes twice in a row or two calls overlap. When the test ends, Run is
// cancelled and awaited, and registries, clients and etcd are closed. TestMain fails if a goroutine is left then.

// patience is how long a condition may take that must come true. Nothing waits
// that long in a test that passes.
const patience = time.Minute

// shortTTL is the shortest lease that is allowed.
const shortTTL = minLeaseTTL

func TestMain(m *testing.M) {
	// Tests wait for nearly all of their time, so that more of them run at once than there are processors. The flag -parallel says otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func startServer(t *testing.T, listen, dir string) *Server {
	t.Helper()
	s, err := StartServer(t.Context(), ServerConfig{Listen: listen, Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func anyServer(t *testing.T) *Server {
	t.Helper()
	return startServer(t, "127.0.0.1:0", t.TempDir())
}

// testNode is a registry with what a test wants to know of it.
type testNode struct {
	*Registry
	t    *testing.T
	logs *logRecorder
	reg  *prometheus.Registry

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced with every change
	contents []cluster.RegistryContent
	busy     bool // in onChange

	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run, when done is closed
}

func open(t *testing.T, ttl time.Duration, endpoints ...string) *testNode {
	t.Helper()
	return openWith(t, Config{LeaseTTL: ttl, Endpoints: endpoints})
}

func openWith(t *testing.T, cfg Config) *testNode {
	t.Helper()
	n := &testNode{t: t, logs: newLogRecorder(), reg: prometheus.NewRegistry(), changed: make(chan struct{}), done: make(chan struct{})}
	cfg.Cluster, cfg.Logger, cfg.Metrics = "test", slog.New(n.logs), n.reg
	r, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	n.Registry = r
	t.Cleanup(r.Close)
	return n
}

// run opens a registry and starts Run.
func run(t *testing.T, ttl time.Duration, endpoints ...string) *testNode {
	t.Helper()
	return runOpen(t, open(t, ttl, endpoints...))
}

func runOpen(t *testing.T, n *testNode) *testNode {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	go func() {
		defer close(n.done)
		n.err = n.Run(ctx, n.record)
	}()
	t.Cleanup(func() {
		cancel()
		<-n.done
	})
	return n
}

func (n *testNode) record(content cluster.RegistryContent) {
	n.mu.Lock()
	if n.busy {
		n.t.Error("onChange is called concurrently")
	}
	n.busy = true
	if k := len(n.contents); k > 0 {
		last := n.contents[k-1]
		if slices.Equal(last.Nodes, content.Nodes) && last.View == content.View && last.ViewRevision == content.ViewRevision && bytes.Equal(last.Rules, content.Rules) &&
			bytes.Equal(last.Tokens, content.Tokens) {
			n.t.Errorf("onChange is called for no change: %+v", content)
		}
	}
	n.contents = append(n.contents, content)
	close(n.changed)
	n.changed = make(chan struct{})
	n.mu.Unlock()

	n.mu.Lock()
	n.busy = false
	n.mu.Unlock()
}

// await waits until the newest content is ok, and returns it.
func (n *testNode) await(what string, ok func(cluster.RegistryContent) bool) cluster.RegistryContent {
	n.t.Helper()
	timeout := time.After(patience)
	for {
		n.mu.Lock()
		changed := n.changed
		var last cluster.RegistryContent
		if len(n.contents) > 0 {
			last = n.contents[len(n.contents)-1]
		}
		good := len(n.contents) > 0 && ok(last)
		n.mu.Unlock()
		if good {
			return last
		}
		select {
		case <-changed:
		case <-timeout:
			n.t.Fatalf("%s: still not so: %+v; log: %q", what, last, n.logs.all())
		}
	}
}

func (n *testNode) history() []cluster.RegistryContent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.contents)
}

// awaitIDs waits until exactly these nodes are listed.
func (n *testNode) awaitIDs(ids ...string) cluster.RegistryContent {
	n.t.Helper()
	return n.await("nodes "+strings.Join(ids, ","), func(content cluster.RegistryContent) bool { return slices.Equal(idsOf(content), ids) })
}

func (n *testNode) awaitView(number uint64) cluster.RegistryContent {
	n.t.Helper()
	return n.await("view", func(content cluster.RegistryContent) bool {
		return content.View != nil && content.View.Number == number
	})
}

func (n *testNode) awaitEnd() error {
	n.t.Helper()
	select {
	case <-n.done:
		return n.err
	case <-time.After(patience):
		n.t.Fatal("Run goes on")
		return nil
	}
}

// metric returns the value of a metric without labels.
func (n *testNode) metric(name string) float64 {
	n.t.Helper()
	families, err := n.reg.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	n.t.Fatalf("no metric %s", name)
	return 0
}

func idsOf(content cluster.RegistryContent) []string {
	var ids []string
	for _, n := range content.Nodes {
		ids = append(ids, n.ID)
	}
	return ids
}

func node(id string, incarnation uint64) cluster.Node {
	return cluster.Node{ID: id, Address: id + ":9090", Incarnation: incarnation, State: cluster.Ready, Version: "test"}
}

var smallRing = ring.Params{Partitions: 64, ReplicationFactor: 10, Load: 1.25}

// viewOf returns a view in which the members own the partitions of smallRing in turn.
func viewOf(number uint64, ids ...string) *view.View {
	v := &view.View{Number: number, Electorate: view.Electorate{Changed: min(number, 1)}}
	for _, id := range slices.Sorted(slices.Values(ids)) {
		v.Members = append(v.Members, view.Member{Life: view.Life{ID: id, Incarnation: 1}, Address: id + ":9090"})
	}
	for p := range smallRing.Partitions {
		v.Partitions = append(v.Partitions, view.Partition{Owner: v.Members[p%len(ids)].Life, Term: min(number, 1)})
	}
	return v
}

// rawClient talks to etcd past the registry.
func rawClient(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := dial(&Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func put(t *testing.T, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := c.Put(ctx, key, value)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// logRecorder is a slog.Handler that keeps the messages.
type logRecorder struct {
	mu      sync.Mutex
	lines   []string
	changed chan struct{}
}

func newLogRecorder() *logRecorder { return &logRecorder{changed: make(chan struct{})} }

func (l *logRecorder) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}
func (l *logRecorder) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logRecorder) WithGroup(string) slog.Handler      { return l }

func (l *logRecorder) Handle(_ context.Context, r slog.Record) error {
	line := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		line += " " + a.String()
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

func (l *logRecorder) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (l *logRecorder) count(part string) int {
	n := 0
	for _, line := range l.all() {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

func (l *logRecorder) await(t *testing.T, part string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if l.count(part) > 0 {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("not logged: %q; but %q", part, l.all())
		}
	}
}

// encoded returns a view as it is stored.
func encoded(t *testing.T, v *view.View) []byte {
	t.Helper()
	b, err := view.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
