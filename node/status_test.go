package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// setView makes n route by a view of these members.
func setView(t *testing.T, n *node, members ...cluster.Member) {
	t.Helper()
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	r, err := ring.Build(ring.DefaultParams, ids)
	if err != nil {
		t.Fatal(err)
	}
	n.router.SetView(&cluster.View{Number: 1, Members: members, Ring: r})
}

// Every problem is told while it lasts, and no other.
func TestProblems(t *testing.T) {
	t.Parallel()
	n, err := build(t.Context(), Network{}, testOptions(t), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	self := cluster.Member{ID: "a", Address: n.opts.GRPC, Incarnation: n.self.Incarnation}
	restarted, other := self, cluster.Member{ID: "b", Address: freed(t), Incarnation: 1}
	restarted.Incarnation++
	died := errors.New("disk full")
	const otherRules = "other rules than this node's are in force on c, because some nodes have rules of their own"
	ours := n.Self().RuleRevision
	rules := func(self, others bool, revision string) func() {
		return func() {
			n.announce(func(n *cluster.Node) { n.OwnRules = self })
			n.membership.Update(cluster.RegistryContent{Nodes: []cluster.Node{n.Self(), {ID: "b", RuleRevision: ours, OwnRules: others}, {ID: "c", RuleRevision: revision, OwnRules: others}}})
		}
	}
	for _, step := range []struct {
		do    func()
		ready bool
		want  []string // how each begins
	}{
		{func() {}, false, []string{"this node is not a member of the view"}},
		{func() { setView(t, n, restarted) }, false, []string{"this node is not a member of the view"}},
		{func() { setView(t, n, self) }, true, nil},
		{func() { setView(t, n, self, other) }, true, []string{"node b at " + other.Address + " does not answer"}},
		{func() { setView(t, n, self) }, true, nil},
		{rules(false, true, "3f2a"), true, []string{otherRules}},
		{rules(true, false, "3f2a"), true, []string{otherRules}},
		{rules(false, false, "3f2a"), true, nil}, // about to follow
		{rules(true, true, ours), true, nil},
		{func() {
			n.etcd.Close()
			for n.registry.Status().Reachable { // some seconds after the last answer
				_, _ = n.registry.Nodes(t.Context())
			}
		}, true, []string{"etcd does not answer"}},
		{func() { n.etcdDied.Store(&died) }, true, []string{"the embedded etcd has died, so that nodes cannot join or leave, nor rules change, until this one is restarted; checks go on: disk full"}},
		{func() { n.leaving.Store(true) }, false, []string{"the embedded etcd has died"}},
	} {
		step.do()
		got := n.Problems()
		ok := len(got) == len(step.want)
		for i := range got {
			ok = ok && strings.HasPrefix(got[i], step.want[i])
		}
		if !ok || n.Ready() != step.ready {
			t.Errorf("ready %t, problems %q, want %t, %q", n.Ready(), got, step.ready, step.want)
		}
	}
}

// stuck is a node's counters, of which every decision waits until the test goes on.
type stuck struct {
	cluster.Local
	goOn <-chan struct{}
}

func (s stuck) Decide(groups []shard.Group) {
	<-s.goOn
	s.Local.Decide(groups)
}

// The watchdog hears nothing of a node whose checks are stuck, and changes nothing of one that answers.
func TestAnswerNeedsTheCounters(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	n, err := build(t.Context(), Network{Local: func(l cluster.Local) cluster.Local { return stuck{l, goOn} }}, testOptions(t), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	setView(t, n, cluster.Member{ID: "a", Address: n.opts.GRPC, Incarnation: n.self.Incarnation})
	checks := func() string {
		families, err := n.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, f := range families {
			if name := f.GetName(); strings.HasPrefix(name, "weir_") {
				fmt.Fprintln(&text, f)
			}
		}
		return text.String()
	}
	before := checks()
	done := make(chan struct{})
	go func() { defer close(done); n.info().Parts.Answer() }()
	select {
	case <-done:
		t.Error("a node whose checks are stuck has answered")
	case <-time.After(50 * time.Millisecond):
	}
	close(goOn)
	<-done
	if after := checks(); after != before || n.Counters() != 0 {
		t.Errorf("%d counters, metrics\n%s\nbefore\n%s", n.Counters(), after, before)
	}
}

// A node that is drained while it starts does not say that it serves until that is cancelled.
func TestDrainedWhileStarting(t *testing.T) {
	t.Parallel()
	n, err := build(t.Context(), Network{}, testOptions(t), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	says := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		resp, err := n.health.Check(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil || resp.GetStatus() != want || n.serving.Load() != (want == healthpb.HealthCheckResponse_SERVING) {
			t.Errorf("%v, %v, want %v", resp, err, want)
		}
	}
	setView(t, n, cluster.Member{ID: "a", Address: n.opts.GRPC, Incarnation: n.self.Incarnation})
	n.membership.Update(cluster.RegistryContent{Nodes: []cluster.Node{n.Self(), {ID: "b", State: cluster.Ready}}})
	if err := n.Drain(false); err != nil {
		t.Fatal(err)
	}
	n.beginServing()
	says(healthpb.HealthCheckResponse_NOT_SERVING)
	if err := n.Drain(true); err != nil {
		t.Fatal(err)
	}
	says(healthpb.HealthCheckResponse_SERVING)
	n.setServing(false)
	n.beginServing()
	says(healthpb.HealthCheckResponse_SERVING)
}

// A node says whether its rules are its own.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("{domain: d, rules: []}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"": false, file: true} {
		opts := testOptions(t)
		opts.Rules = path
		n, err := build(t.Context(), Network{}, opts, quiet())
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Self().OwnRules; got != want {
			t.Errorf("with --rules %q: %t", path, got)
		}
		n.close()
	}
}

// TestStuckPartsDoNotAnswer: a lock that is held for good keeps the node from answering.
func TestStuckPartsDoNotAnswer(t *testing.T) {
	t.Parallel()
	n, err := build(t.Context(), Network{}, testOptions(t), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	parts := n.info().Parts
	parts.Answer()

	n.mu.Lock()
	answered := make(chan struct{})
	go func() {
		parts.Answer()
		close(answered)
	}()
	select {
	case <-answered:
		t.Error("the node answers although its lock is held")
	case <-time.After(100 * time.Millisecond):
	}
	n.mu.Unlock()
	<-answered
}
