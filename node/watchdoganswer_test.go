package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/shard"
)

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
