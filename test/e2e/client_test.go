package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// A client that was told of one node goes on without errors, and without an answer of its
// own, while each node is stopped or killed in turn and comes back.
func TestClientOutlivesItsNodes(t *testing.T) {
	testform.NotInBrief(t)
	_, nodes := startThree(t, rulesPerYear(1_000_000))
	// A second is far beyond what a check may take. Undecided after it is a fault.
	c, err := client.New(nodes[0].GRPC, client.WithTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	awaitAll(t, c, len(nodes)) // or it knows only the one that is stopped first
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			pace := time.NewTicker(2 * time.Millisecond)
			defer pace.Stop()
			for n := i; ctx.Err() == nil; n++ {
				r, err := c.Check(context.Background(), user(fmt.Sprint("user-", n%300)))
				if err != nil || client.Undecided(r) && r.GetRuleId() == "" {
					t.Errorf("%v, %v, want a node's answer", r, err)
					return
				}
				<-pace.C
			}
		})
	}
	for i, n := range nodes {
		if i == 1 {
			n.Kill()
		} else {
			n.Signal(syscall.SIGTERM)
			if code := n.Wait(process.Patience); code != 0 {
				t.Errorf("%s: exit code %d", n.ID, code)
			}
		}
		n.Restart()
		process.AwaitMembers(t, process.Patience, nodes...)
	}
	awaitAll(t, c, len(nodes))
	cancel()
	wg.Wait()
}

// What a node allows by its rule's on_failure, because two of three nodes are dead, is undecided as well.
func TestUndecidedByANode(t *testing.T) {
	t.Parallel()
	_, nodes := startThree(t, rulesPerYear(1_000_000))
	awaitSettled(t, nodes...)
	awaitPartitionsElsewhere(t, nodes[0])
	nodes[1].Kill()
	nodes[2].Kill()
	undecided := 0
	for i := range 60 {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		r, err := nodes[0].Client.Check(ctx, user(fmt.Sprint("user-", i)))
		cancel()
		if open := r.GetSource() == weirv1.Source_SOURCE_FAIL_OPEN; err != nil || client.Undecided(r) != open || open && r.GetRuleId() == "" {
			t.Errorf("%v, %v", r, err)
		}
		if client.Undecided(r) {
			undecided++
		}
	}
	if undecided == 0 {
		t.Error("this node has decided all checks alone")
	}
}

// awaitPartitionsElsewhere waits until a node has a copy of at most three quarters of the partitions to grant from. The first one of a cluster is the
// standby of all that it has handed over, until others are.
func awaitPartitionsElsewhere(t *testing.T, n *process.Node) {
	t.Helper()
	process.Await(t, process.Patience, func() error {
		ring, err := n.Client.GetRing(t.Context(), false)
		if err != nil {
			return err
		}
		for _, s := range ring.GetShares() {
			if has := s.GetOwned() + s.GetStandby(); s.GetId() == n.ID && 4*has > 3*ring.GetPartitions() {
				return fmt.Errorf("%s owns %d of %d partitions, and is the standby of %d", n.ID, s.GetOwned(), ring.GetPartitions(), s.GetStandby())
			}
		}
		return nil
	})
}

// A node of another cluster that answers at the address that a client was given is not asked, even if it has the
// id of the node that was there.
func TestClientMeetsAnotherCluster(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	const users, limit = 100, 3
	rules := rulesPerYear(limit)
	_, nodes := startThree(t, rules, "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	victim := nodes[2]
	// One client looks for the other nodes itself, the other one asks just those that it was told of.
	discovers := openClient(t, victim.GRPC, client.WithTimeout(4*time.Second))
	told := openClient(t, victim.GRPC, client.WithTimeout(4*time.Second), client.WithSeeds(nodes[0].GRPC, nodes[1].GRPC), client.WithoutDiscovery())
	clients := []*client.Client{discovers, told}
	for _, c := range clients {
		awaitAll(t, c, len(nodes))
	}
	exhaust(t, nodes[0], users, limit)
	pause(t, 500*time.Millisecond) // the standbys have it all
	victim.Kill()
	stranger := process.Start(t, "--grpc", victim.GRPC, "--id", victim.ID, "--rules", writeRules(t, rules))
	for began := time.Now(); time.Since(began) < 5*time.Second; {
		for i, c := range clients {
			for u := range users {
				resp, err := c.Check(t.Context(), user(fmt.Sprint("user-", u)))
				if err != nil || resp.GetAllowed() {
					t.Fatalf("client %d, user %d, %v after the kill: allowed by %v, %v", i, u, time.Since(began), resp.GetSource(), err)
				}
			}
		}
	}
	for i, c := range clients {
		if problem := problemAt(c, victim.GRPC); !strings.Contains(fmt.Sprint(problem), "another cluster") {
			t.Errorf("client %d says of the stranger: %v", i, problem)
		}
	}
	health, err := stranger.Client.Health(t.Context())
	if err != nil || health.GetCounters() > 0 {
		t.Errorf("%d counters of this cluster are counted by the other one, %v", health.GetCounters(), err)
	}
}

// openClient returns a client that is closed when the test ends.
func openClient(t *testing.T, addr string, opts ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New(addr, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// problemAt returns why a client does not ask the node at an address.
func problemAt(c *client.Client, address string) error {
	for _, node := range c.Stats().Nodes {
		if node.Address == address {
			return node.Problem
		}
	}
	return nil
}

// awaitAll returns when the client can ask so many nodes, and knows of no more.
func awaitAll(t *testing.T, c *client.Client, nodes int) {
	process.Await(t, process.Patience, func() error { // it looks for nodes every 10 s or so
		known := c.Stats().Nodes
		for _, node := range known {
			if node.Problem != nil {
				return node.Problem
			}
		}
		if len(known) != nodes {
			return fmt.Errorf("the client knows %d nodes, want %d", len(known), nodes)
		}
		return nil
	})
}
