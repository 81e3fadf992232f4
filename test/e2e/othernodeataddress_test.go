package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// awaitSettled waits until no partition is to move.
func awaitSettled(t *testing.T, nodes ...*process.Node) {
	t.Helper()
	process.AwaitSettled(t, process.Patience, nodes...)
}

// exhaust takes all of the limit of so many users.
func exhaust(t *testing.T, n *process.Node, users, limit int) {
	t.Helper()
	for i := range users {
		req := user(fmt.Sprint("user-", i))
		req.TokensRequested = int64(limit)
		if resp := decide(t, n, req); !resp.GetAllowed() {
			t.Fatalf("user %d: %v", i, resp)
		}
	}
}

// check asks a node for one token of the i-th user, with the patience of a standby that looks for the owner first.
func check(t *testing.T, n *process.Node, i int) (*weirv1.RateLimitResponse, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	began := time.Now()
	resp, err := n.Client.Check(ctx, user(fmt.Sprint("user-", i)))
	if took := time.Since(began); took > 500*time.Millisecond {
		t.Logf("user %d: %v after %v", i, resp.GetSource(), took)
	}
	return resp, err
}

// reasons returns what a node's health says.
func reasons(n *process.Node) string {
	health, err := n.Client.Health(context.Background())
	if err != nil {
		return err.Error()
	}
	return strings.Join(health.GetReasons(), "\n")
}

func TestForeignClusterAtAMembersAddress(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	const users, limit = 200, 3
	rules := rulesPerYear(limit)
	_, nodes := startThree(t, rules, "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	exhaust(t, nodes[0], users, limit)
	pause(t, 500*time.Millisecond) // the standbys have it all
	victim, others := nodes[2], nodes[:2]
	victim.Kill()
	stranger := process.Start(t, "--grpc", victim.GRPC, "--id", "stranger", "--rules", writeRules(t, rules))

	said := make(map[string]bool) // by id of the node whose health it is
	for began := time.Now(); time.Since(began) < 8*time.Second; {
		for i := range users {
			resp, err := check(t, others[i%2], i)
			if err != nil {
				t.Fatalf("user %d, %v after the kill: %v", i, time.Since(began), err)
			}
			if resp.GetAllowed() {
				t.Fatalf("user %d is granted again by %v", i, resp.GetSource())
			}
		}
		for _, n := range others {
			said[n.ID] = said[n.ID] || strings.Contains(reasons(n), `node "stranger" of another cluster`)
		}
	}
	for _, n := range others {
		if !said[n.ID] {
			t.Errorf("the health of %s does not name the stranger: %s", n.ID, reasons(n))
		}
	}
	process.AwaitMembers(t, process.Patience, others...)
	health, err := stranger.Client.Health(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if health.GetCounters() > 0 {
		t.Errorf("%d counters of this cluster are counted by the other one", health.GetCounters())
	}
	if n := strings.Count(others[0].Log(), "a connection leads to the wrong node"); n != 1 {
		t.Errorf("the stranger is logged %d times, want once", n)
	}
}

func TestNewIDAtADeadMembersAddress(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	const users, limit = 200, 3
	etcd, nodes := startThree(t, rulesPerYear(limit), "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	exhaust(t, nodes[0], users, limit)
	pause(t, 500*time.Millisecond)
	victim := nodes[2]
	victim.Kill()
	heir := process.Start(t, "--etcd", etcd.Endpoint, "--grpc", victim.GRPC, "--id", "heir",
		"--rules", writeRules(t, rulesPerYear(limit)), "--peer-timeout", "4s")
	now := []*process.Node{nodes[0], nodes[1], heir}
	process.AwaitMembers(t, process.Patience, now...)
	awaitSettled(t, now...)
	for i := range users {
		resp, err := check(t, now[i%3], i)
		if err != nil {
			t.Fatal(err)
		}
		if resp.GetAllowed() || resp.GetSource() == weirv1.Source_SOURCE_PROVISIONAL {
			t.Errorf("user %d: allowed %v by %v", i, resp.GetAllowed(), resp.GetSource())
		}
	}
	began := time.Now()
	nodes[1].Signal(syscall.SIGTERM)
	if code := nodes[1].Wait(process.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 15*time.Second { // waiting for the dead node took 22 s
		t.Errorf("it stops after %v", took)
	}
	if strings.Contains(nodes[1].Log(), "were not handed over") {
		t.Error("the drain has left partitions behind")
	}
}

// Two nodes cannot have one address: the second one does not start, as long as the first one lives.
func TestAddressOfAnotherNode(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	etcd := process.StartEtcd(t)
	first := process.Start(t, "--etcd", etcd.Endpoint)
	args := []string{"serve", "--etcd", etcd.Endpoint, "--id", "second", "--advertise", first.GRPC,
		"--grpc", process.Host(t) + ":0", "--http", process.Host(t) + ":0", "--data-dir", t.TempDir()}
	out, err := exec.CommandContext(t.Context(), process.Binary(t), args...).CombinedOutput()
	quoted, _ := json.Marshal(fmt.Sprintf("advertise: %s is taken by a node that runs: %q", first.GRPC, first.ID)) // a string
	want := strings.Trim(string(quoted), `"`)
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
	first.Kill()
	process.Start(t, "--etcd", etcd.Endpoint, "--id", "second", "--grpc", first.GRPC)
}
