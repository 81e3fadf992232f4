package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// What weir nodes says of a node is ready only when /readyz says so. The time in which it is
// not is short, so several nodes are looked at while they start.
func TestNodesAgreeWithReadyz(t *testing.T) {
	for range 5 {
		if seen := watchStart(t); seen > 0 {
			t.Logf("%d lists while the node was not ready", seen)
			return
		}
	}
	t.Error("no node was seen while it was not ready")
}

// watchStart starts a node and returns how many lists of nodes came between two answers of
// /readyz that it is not ready. It waits until the node is ready.
func watchStart(t *testing.T) (seen int) {
	t.Helper()
	grpc, http := freeAddress(t), freeAddress(t)
	cmd := exec.Command(process.Binary(t), "serve", "--id", "n", "--grpc", grpc, "--http", http, "--etcd-listen", net.JoinHostPort(process.Host(t), "0"), "--data-dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it may have failed
		_ = cmd.Wait()
	}()
	c, err := client.NewNode(grpc)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ready := false
	over := time.After(30 * time.Second)
	for !ready {
		before := readyz(http)
		nodes, err := list(c)
		ready = readyz(http) == 200
		if err != nil {
			select {
			case <-over:
				t.Fatal(err)
			case <-time.After(time.Millisecond): // it does not listen yet
			}
			continue
		}
		for _, n := range nodes.GetNodes() {
			if before != 503 || ready {
				continue
			}
			if seen++; n.GetState() == weirv1.NodeState_NODE_STATE_READY {
				t.Errorf("/readyz says no, and the list of nodes %v", n)
			}
		}
	}
	nodes, err := list(c)
	if err != nil || len(nodes.GetNodes()) != 1 || nodes.GetNodes()[0].GetState() != weirv1.NodeState_NODE_STATE_READY {
		t.Errorf("/readyz says yes, and the list of nodes %v, %v", nodes, err)
	}
	return seen
}

// What weir nodes says of another node is what that node's /readyz says, also while etcd cannot tell it.
func TestNodesAgreeWithReadyzOfOthers(t *testing.T) {
	t.Parallel()
	etcd, nodes := startThreeWith(t, "--peer-timeout", "4s")
	etcd.Kill()
	drained := nodes[2]
	for _, tc := range []struct {
		cancel bool
		state  weirv1.NodeState
		ready  int
	}{
		{false, weirv1.NodeState_NODE_STATE_LEAVING, http.StatusServiceUnavailable},
		{true, weirv1.NodeState_NODE_STATE_READY, http.StatusOK},
	} {
		if _, err := drained.Client.DrainNode(t.Context(), drained.ID, tc.cancel); err != nil {
			t.Fatal(err)
		}
		process.Await(t, process.Patience, func() error {
			for _, asked := range nodes {
				for _, n := range asked.Nodes().GetNodes() {
					if n.GetId() == drained.ID && n.GetState() != tc.state {
						return fmt.Errorf("%s says %v of %s, want %v", asked.ID, n.GetState(), n.GetId(), tc.state)
					}
				}
			}
			if got := readyz(drained.HTTP); got != tc.ready {
				return fmt.Errorf("/readyz says %d, want %d", got, tc.ready)
			}
			return nil
		})
	}
}

// What another node says that a drained node still has to hand over is what that node says itself. A member that has stopped keeps it from handing over.
func TestNodesAgreeWithTheDrainedNode(t *testing.T) {
	t.Parallel()
	_, nodes := startThree(t, rulesPerYear(yearlyLimit))
	awaitSettled(t, nodes...)
	other, stopped, drained := nodes[0], nodes[1], nodes[2]
	listed := func(asked *process.Node) string {
		for line := range strings.Lines(weirNodes(t, asked)) {
			if strings.HasPrefix(line, drained.ID) {
				return strings.Join(strings.Fields(line), " ")
			}
		}
		return ""
	}
	stopped.Signal(syscall.SIGSTOP)
	if _, err := drained.Client.DrainNode(t.Context(), drained.ID, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`.* leaving .* [1-9]\d* out .*`, `.* leaving .* 0 - .*`} {
		said := regexp.MustCompile(`^(?:` + want + `)$`)
		process.Await(t, process.Patience, func() error {
			if here, there := listed(other), listed(drained); here != there || !said.MatchString(here) {
				return fmt.Errorf("another node lists %q, and the drained one %q, want %s", here, there, said)
			}
			return nil
		})
		stopped.Signal(syscall.SIGCONT)
	}
}

func list(c *client.Node) (*weirv1.ListNodesResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.ListNodes(ctx)
}

// readyz returns the status of /readyz, or 0 if the node does not answer.
func readyz(address string) int {
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
