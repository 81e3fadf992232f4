package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// healed is the time in which a cluster is to be whole again.
const healed = 5 * time.Second

// hung is when a test gives up on what is to happen. It is no promise.
const hung = time.Minute

// stage is an etcd and nodes that have joined it.
type stage struct {
	t     *testing.T
	etcd  *process.Etcd
	rules string
	nodes []*process.Node

	traffic *traffic // on the nodes, nil before it starts

	peerTimeout time.Duration // of the nodes
}

// newStage starts an etcd and so many nodes.
func newStage(t *testing.T, nodes int) *stage {
	t.Helper()
	return newStageOf(t, nodes, *peerTimeout)
}

// newStageOf starts an etcd and so many nodes, of which each waits so long for another.
func newStageOf(t *testing.T, nodes int, peerTimeout time.Duration) *stage {
	t.Helper()
	testform.NotWhileRacing(t)
	s := &stage{t: t, etcd: process.StartEtcd(t), rules: writeRules(t), peerTimeout: peerTimeout}
	s.join(nodes)
	return s
}

// join starts more nodes at once, and waits until they hold what is theirs.
func (s *stage) join(nodes int) []*process.Node {
	s.t.Helper()
	more := make([]*process.Node, nodes)
	var wg sync.WaitGroup
	for i := range more {
		wg.Go(func() { more[i] = s.start(fmt.Sprintf("node-%d", len(s.nodes)+i+1)) })
	}
	wg.Wait()
	s.nodes = append(s.nodes, more...)
	s.settle(hung)
	return more
}

// start starts a node, without waiting until it holds something.
func (s *stage) start(id string) *process.Node {
	s.t.Helper()
	return process.Start(s.t, "--id", id, "--etcd", s.etcd.Endpoint, "--rules", s.rules, "--peer-timeout", s.peerTimeout.String())
}

// drop forgets a node that has ended.
func (s *stage) drop(n *process.Node) {
	s.nodes = slices.DeleteFunc(slices.Clone(s.nodes), func(o *process.Node) bool { return o == n })
}

// settle waits until the nodes are one cluster, and every partition has one owner that decides. It returns
// the number of their view, and how long it took, which may be promised at most.
func (s *stage) settle(promised time.Duration) (view uint64, took time.Duration) {
	s.t.Helper()
	return s.settleOf(promised, s.nodes...)
}

// settleOf is settle for some of the nodes.
func (s *stage) settleOf(promised time.Duration, nodes ...*process.Node) (view uint64, took time.Duration) {
	s.t.Helper()
	began := time.Now()
	view = settle(s.t, nodes...)
	s.traffic.checkPromise("to settle", promised, began)
	return view, time.Since(began)
}

func settle(t *testing.T, nodes ...*process.Node) (view uint64) {
	t.Helper()
	nodes = slices.Clone(nodes)
	process.Await(t, hung, func() error {
		view = 0
		held, asked := 0, 0
		defer func() { // a node that is not ready is asked first, and alone: to ask all, all the time, is a load as well
			nodes[0], nodes[asked] = nodes[asked], nodes[0]
		}()
		for i, n := range nodes {
			asked = i
			resp := n.Nodes()
			members := 0
			for _, m := range resp.GetNodes() {
				if m.GetMember() {
					members++
					if !m.GetReachable() {
						return fmt.Errorf("%s does not reach %s", n.ID, m.GetId())
					}
				}
				if m.GetId() != n.ID {
					continue
				}
				if m.GetWanted() > 0 || m.GetLeaving() > 0 {
					return fmt.Errorf("%s is at view %d and lacks %d, and others lack %d from it", n.ID, resp.GetView(), m.GetWanted(), m.GetLeaving())
				}
				held += int(m.GetActive())
			}
			if view == 0 {
				view = resp.GetView()
			}
			if members != len(nodes) || view != resp.GetView() {
				return fmt.Errorf("%s is at view %d with %d members, want view %d with %d", n.ID, resp.GetView(), members, view, len(nodes))
			}
		}
		if partitions := len(owners(t, nodes[0])); held != partitions {
			return fmt.Errorf("%d of %d partitions have a node that decides", held, partitions)
		}
		return nil
	})
	return view
}

// owners returns the ids of the owners of all partitions, as a node knows them.
func owners(t *testing.T, n *process.Node) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := n.Client.GetRing(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]string, len(r.GetOwners()))
	for p, i := range r.GetOwners() {
		ids[p] = r.GetShares()[i].GetId()
	}
	return ids
}

// moved returns how many partitions have another owner in b than in a.
func moved(a, b []string) (n int) {
	for p := range a {
		if a[p] != b[p] {
			n++
		}
	}
	return n
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }
