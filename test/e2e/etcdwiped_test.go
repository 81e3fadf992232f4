package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// TestWipedEtcdIsRestored empties etcd's directory. The nodes go on, and refuse to believe it,
// until one of them is told to write what it knows.
func TestWipedEtcdIsRestored(t *testing.T) {
	t.Parallel()
	etcd, nodes := startThreeWith(t, "--peer-timeout", "4s")
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	apply := func(limit int, n *process.Node) error {
		if err := os.WriteFile(rules, []byte(rulesPerYear(limit)), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(process.Binary(t), "rules", "apply", "-f", rules, "--node", n.GRPC).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := apply(1_000_000, nodes[0]); err != nil {
		t.Fatal(err)
	}
	process.AwaitSettled(t, process.Patience, nodes...)
	view := nodes[0].Nodes().GetView()
	importView := func(args ...string) (string, error) {
		out, err := exec.Command(process.Binary(t), append([]string{"view", "import", "--node", nodes[1].GRPC}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := importView("--yes"); err == nil || !strings.Contains(out, "nothing to import") {
		t.Errorf("an etcd that was not wiped: %s", out)
	}
	var counts atomic.Pointer[tally]
	counts.Store(new(tally))
	stop := load(nodes[:2], &counts)
	defer stop()

	etcd.Wipe()
	await := func(degraded bool) {
		t.Helper()
		process.Await(t, process.Patience, func() error {
			for _, n := range nodes {
				h, err := n.Client.Health(t.Context())
				if err != nil {
					return err
				}
				if strings.Contains(strings.Join(h.GetReasons(), "\n"), "etcd was wiped") != degraded {
					return fmt.Errorf("%s: %q", n.ID, h.GetReasons())
				}
			}
			return nil
		})
	}
	await(true)
	if err := apply(999_999, nodes[0]); err == nil {
		t.Error("the rules were changed in an etcd that was wiped")
	}
	// A node started again now does not found a new cluster.
	nodes[2].Kill()
	nodes[2].Restart()
	if out, err := importView(); err != nil || !strings.Contains(out, fmt.Sprintf("view     %d,", view+1)) || !strings.Contains(out, "revision 1") {
		t.Errorf("what would be written: %v\n%s", err, out)
	}
	await(true)
	if out, err := importView("--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	await(false)
	nodes = append(nodes, process.Start(t, "--etcd", etcd.Endpoint))
	process.AwaitMembers(t, process.Patience, nodes...)
	if err := apply(999_998, nodes[3]); err != nil {
		t.Error(err)
	}
	stop()
	counts.Load().noErrors(t)
	for _, n := range nodes[2].Nodes().GetNodes() {
		if n.GetId() == nodes[2].ID && n.GetIncarnation() != 2 {
			t.Errorf("%s has incarnation %d, want 2: its starts were forgotten", n.GetId(), n.GetIncarnation())
		}
	}
}
