package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
