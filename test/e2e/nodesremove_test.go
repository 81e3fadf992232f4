package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// An operator's word takes a dead member out before its lease has ended, and its counters go on.
func TestNodesRemove(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	const users, limit = 100, 3
	_, nodes := startThree(t, rulesPerYear(limit), "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	exhaust(t, nodes[0], users, limit)
	pause(t, 500*time.Millisecond) // the standbys have it all
	remove := func(id string) (string, error) {
		out, err := exec.CommandContext(t.Context(), process.Binary(t), "nodes", "remove", id, "--node", nodes[0].GRPC).CombinedOutput()
		return string(out), err
	}
	if out, err := remove("none"); err == nil || !strings.Contains(out, `"none": it is no member`) {
		t.Errorf("a node that there is not: %v, %s", err, out)
	}
	for _, n := range nodes {
		if out, err := remove(n.ID); err == nil || !strings.Contains(out, "weir drain "+n.ID) {
			t.Errorf("a member that lives: %v, %s", err, out)
		}
	}
	victim, others := nodes[2], nodes[:2]
	victim.Signal(syscall.SIGSTOP) // so that its lease is not missed before its time, nor its port free
	killed := time.Now()
	process.Await(t, process.Patience, func() error {
		out, err := remove(victim.ID)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if want := victim.ID + " is no member of view"; !strings.Contains(out, want) {
			t.Errorf("%s, want %s", out, want)
		}
		return nil
	})
	process.AwaitMembers(t, process.Patience, others...)
	audited, err := exec.CommandContext(t.Context(), process.Binary(t), "audit", "--node", nodes[0].GRPC).CombinedOutput() // an error: the victim does not answer
	if want := fmt.Sprintf("  Cluster.RemoveNode  %q  OK\n", victim.ID); strings.Count(string(audited), want) != 1 {
		t.Errorf("weir audit: %v, want one line with %s:\n%s", err, want, audited)
	}
	t.Logf("it is removed after %v", time.Since(killed).Round(100*time.Millisecond))
	awaitSettled(t, others...)
	t.Logf("others have its partitions after %v", time.Since(killed).Round(100*time.Millisecond))
	for i := range users {
		resp, err := check(t, others[i%2], i)
		if err != nil || resp.GetAllowed() {
			t.Errorf("user %d: %v, %v", i, resp, err)
		}
	}
	victim.Signal(syscall.SIGCONT)
	process.AwaitMembers(t, process.Patience, nodes...)
	awaitSettled(t, nodes...)
	for i := range users {
		resp, err := check(t, nodes[i%3], i)
		if err != nil || resp.GetAllowed() {
			t.Errorf("user %d, once it is back: %v, %v", i, resp, err)
		}
	}
}
