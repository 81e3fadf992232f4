package etcd

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/cluster"
)

// openKnowing opens a registry that knows something from an earlier run, and follows it.
func openKnowing(t *testing.T, endpoint string, k *Known) *testNode {
	t.Helper()
	n := &testNode{t: t, logs: newLogRecorder(), reg: prometheus.NewRegistry(), changed: make(chan struct{}), done: make(chan struct{})}
	r, err := Open(t.Context(), Config{Endpoints: []string{endpoint}, Cluster: "test", Known: k, Logger: slog.New(n.logs), Metrics: n.reg})
	if err != nil {
		t.Fatal(err)
	}
	n.Registry = r
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(n.done)
		n.err = n.Run(ctx, n.record)
	}()
	t.Cleanup(func() {
		cancel()
		<-n.done
		r.Close()
	})
	return n
}

// bootstrapped returns what is known of a new cluster in etcd, whose view has that number.
func bootstrapped(t *testing.T, endpoint string, number uint64) *Known {
	t.Helper()
	n := run(t, 0, endpoint)
	if _, err := n.Bootstrap(t.Context(), cluster.Params{Ring: smallRing}); err != nil {
		t.Fatal(err)
	}
	v := viewOf(number, "a", "b")
	if err := n.SwapView(t.Context(), v, 0); err != nil {
		t.Fatal(err)
	}
	return &Known{Params: n.Params(), Incarnation: 7, View: v, Rules: []byte("rules")}
}

func TestOpenWhileEtcdIsDown(t *testing.T) {
	t.Parallel()
	s := anyServer(t)
	p := newProxy(t, s.Endpoint())
	k := bootstrapped(t, s.Endpoint(), 3)
	put(t, rawClient(t, s.Endpoint()), keysOf("test").view, " "+string(encoded(t, k.View))) // the same, by other software
	p.cut()
	n := openKnowing(t, p.addr(), k)
	if n.Reachable() || n.metric("weir_etcd_up") != 0 || n.logs.count("etcd unreachable") != 1 {
		t.Errorf("it says that etcd answers; log %q", n.logs.all())
	}
	p.connect(s.Endpoint())
	got := n.awaitView(3)
	if n.Status().Alarm != "" || !n.Reachable() || got.ViewRevision == 0 {
		t.Errorf("%+v, %+v", n.Status(), got)
	}
	if err := n.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	// Above what the node knows, above what etcd knows.
	for _, want := range []uint64{8, 9} {
		if got, err := n.NextIncarnation(t.Context(), "a"); got != want || err != nil {
			t.Errorf("incarnation %d, %v, want %d", got, err, want)
		}
	}
	if err := n.SwapView(t.Context(), viewOf(4, "a"), got.ViewRevision); err != nil {
		t.Error(err)
	}
}

// An etcd that has less than what is known is not believed, and not written to.
func TestOpenWipedEtcd(t *testing.T) {
	t.Parallel()
	restored := anyServer(t)
	older := bootstrapped(t, restored.Endpoint(), 2)
	newer := *older
	newer.View = viewOf(5, "a", "b")
	another := viewOf(2, "a")
	for name, tc := range map[string]struct {
		endpoint string
		known    *Known
		verify   error
		alarm    string
	}{
		"wiped":         {anyServer(t).Endpoint(), known(t), ErrWiped, "etcd was wiped: it has lost the parameters of this cluster"},
		"restored":      {restored.Endpoint(), &newer, ErrWiped, "etcd was wiped or restored: it has view 2 after view 5"},
		"other cluster": {restored.Endpoint(), known(t), ErrOtherCluster, "etcd was wiped: it has parameters of another cluster of this name"},
		"another view":  {restored.Endpoint(), &Known{Params: older.Params, View: another}, nil, "etcd was wiped or restored: it has another view 2"},
	} {
		t.Run(name, func(t *testing.T) {
			n := openKnowing(t, tc.endpoint, tc.known)
			n.logs.await(t, "view in etcd refused")
			if st := n.Status(); st.Alarm != tc.alarm || !st.Wiped {
				t.Errorf("alarm %q, want %q", st.Alarm, tc.alarm)
			}
			if err := n.Verify(t.Context()); !errors.Is(err, tc.verify) {
				t.Errorf("%v, want %v", err, tc.verify)
			}
			got := n.await("a view", func(content cluster.RegistryContent) bool { return content.View != nil })
			if got.View != tc.known.View || string(got.Rules) != string(tc.known.Rules) {
				t.Errorf("believes %+v", got)
			}
			if err := n.SwapView(t.Context(), viewOf(9, "a"), got.ViewRevision); !errors.Is(err, cluster.ErrViewChanged) {
				t.Errorf("swap: %v", err)
			}
		})
	}
}
