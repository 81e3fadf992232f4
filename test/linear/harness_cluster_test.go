package linear

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// peerTimeout is how long every node waits for another. With the default of 25 ms standbys decide on a machine without
// enough processors, because owners are late: that must not be mistaken for a fault (docs/chaos.md).
const peerTimeout = "4s"

// settledWithin is the time in which partitions are where the view has them.
const settledWithin = 20 * time.Second

// stage is an etcd and nodes that have joined it.
type stage struct {
	t     *testing.T
	etcd  *process.Etcd
	rules string // file
	nodes []*process.Node
	start func(id string, args ...string) *process.Node
}

// newStage returns an etcd with three nodes, which start starts, or process.Start if that is nil.
func newStage(t *testing.T, all []*kind, start func(id string, args ...string) *process.Node) *stage {
	t.Helper()
	s := &stage{t: t, etcd: process.StartEtcd(t), rules: filepath.Join(t.TempDir(), "rules.yaml"), start: start}
	if s.start == nil {
		s.start = func(id string, args ...string) *process.Node {
			return process.Start(t, append(args, "--id", id)...)
		}
	}
	if err := os.WriteFile(s.rules, []byte(rulesText(all)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.join("a", "b", "c")
	return s
}

// join starts nodes at once, and waits until they own what is theirs.
func (s *stage) join(ids ...string) {
	s.t.Helper()
	more := make([]*process.Node, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			more[i] = s.start(id, "--etcd", s.etcd.Endpoint, "--rules", s.rules, "--peer-timeout", peerTimeout)
		})
	}
	wg.Wait()
	s.nodes = append(s.nodes, more...)
	s.settle()
}

// settle waits until the nodes are one cluster, and no partition is to move.
func (s *stage) settle() {
	s.t.Helper()
	process.AwaitSettled(s.t, settledWithin, s.nodes...)
}

// drain has a node leave while a load goes on, which asks it until it says that it is not ready.
func (s *stage) drain(n *process.Node, l *load) {
	s.t.Helper()
	n.Signal(syscall.SIGTERM)
	process.Await(s.t, settledWithin, func() error {
		resp, err := http.Get("http://" + n.HTTP + "/readyz")
		if err != nil {
			return nil
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode == http.StatusOK {
			return fmt.Errorf("%s says that it is ready", n.ID)
		}
		return nil
	})
	l.without(n.Client)
	if code := n.Wait(settledWithin); code != 0 {
		s.t.Errorf("%s: exit code %d", n.ID, code)
	}
	s.drop(n)
	s.settle()
}

// drop forgets a node that has ended.
func (s *stage) drop(n *process.Node) {
	s.nodes = slices.DeleteFunc(slices.Clone(s.nodes), func(o *process.Node) bool { return o == n })
}

// deciders are all nodes.
func (s *stage) deciders() (all []decider) {
	for _, n := range s.nodes {
		all = append(all, n.Client)
	}
	return all
}
