package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"

	"github.com/weirlimit/weir/test/process"
)

// When the etcd in a node's process cannot write any more, it ends itself. The
// checks go on, on all nodes, and the node says what is wrong.
func TestEmbeddedEtcdDies(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	rules := writeRules(t, rulesPerYear(1_000_000))
	first := process.Start(t, "--id", "a", "--rules", rules)
	second := process.Start(t, "--id", "b", "--rules", rules, "--etcd", first.Etcd)
	process.AwaitSettled(t, process.Patience, first, second)
	view := process.AwaitMembers(t, process.Patience, first, second)
	var counts atomic.Pointer[tally]
	counts.Store(new(tally))
	stop := load([]*process.Node{first, second}, &counts)
	defer stop()

	// Every write to a file fails from now on, as on a full disk.
	if err := unix.Prlimit(first.PID(), unix.RLIMIT_FSIZE, &unix.Rlimit{}, nil); err != nil {
		t.Fatal(err)
	}
	// A joining node makes etcd write: otherwise that may take a while.
	third := exec.Command(process.Binary(t), "serve", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--etcd", first.Etcd, "--data-dir", t.TempDir())
	if out, err := third.CombinedOutput(); err == nil {
		t.Errorf("a third node has joined: %s", out)
	}
	process.Await(t, process.Patience, func() error {
		health, err := first.Client.Health(t.Context())
		if err != nil {
			return err
		}
		if !health.GetDegraded() || !strings.Contains(strings.Join(health.GetReasons(), "\n"), "the embedded etcd has died") {
			return fmt.Errorf("reasons %q", health.GetReasons())
		}
		return nil
	})
	pause(t, 7*time.Second) // longer than a lease
	stop()
	counts.Load().noErrors(t)
	counts.Load().decided(t)
	if got := process.AwaitMembers(t, process.Patience, first, second); got != view {
		t.Errorf("view %d, it was %d before etcd died", got, view)
	}
	for _, n := range first.Nodes().GetNodes() {
		if n.GetState() != weirv1.NodeState_NODE_STATE_READY || !n.GetMember() {
			t.Errorf("%v", n)
		}
	}
	for _, n := range []*process.Node{first, second} {
		n.Signal(syscall.SIGTERM)
		if code := n.Wait(process.Patience); code != 0 {
			t.Errorf("exit code %d of %s", code, n.ID)
		}
	}
}
