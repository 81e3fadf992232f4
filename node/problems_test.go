package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirlimit/weir/cluster"
)

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
	ours := n.Self().RulesHash
	rules := func(self, others bool, hash string) func() {
		return func() {
			n.announce(func(n *cluster.Node) { n.OwnRules = self })
			n.membership.Update(cluster.RegistryContent{Nodes: []cluster.Node{n.Self(), {ID: "b", RulesHash: ours, OwnRules: others}, {ID: "c", RulesHash: hash, OwnRules: others}}})
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
