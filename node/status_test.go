package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"
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
	n, err := build(t.Context(), testOptions(t), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	self := cluster.Member{ID: "a", Address: n.opts.GRPC, Incarnation: n.self.Incarnation}
	restarted, other := self, cluster.Member{ID: "b", Address: freed(t), Incarnation: 1}
	restarted.Incarnation++
	died := errors.New("disk full")
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
		{func() { n.etcd.Close(); _, _ = n.registry.Nodes(t.Context()) }, true, []string{"etcd does not answer"}},
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
