package e2e

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/test/process"
)

// A client that was told of one node goes on without errors, and without an answer of its
// own, while each node is stopped or killed in turn and comes back.
func TestClientOutlivesItsNodes(t *testing.T) {
	_, nodes := startThree(t, rulesPerYear(1_000_000))
	// A second is far beyond what a check may take. Undecided after it is a fault.
	c, err := client.New(nodes[0].GRPC, client.WithTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	awaitAll(t, c, len(nodes)) // or it knows of nobody but the one that is stopped first
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			pace := time.NewTicker(2 * time.Millisecond)
			defer pace.Stop()
			for n := i; ctx.Err() == nil; n++ {
				r, err := c.Check(context.Background(), user(fmt.Sprint("user-", n%300)))
				if err != nil || client.Undecided(r) {
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
			if code := n.Wait(10 * time.Second); code != 0 {
				t.Errorf("%s: exit code %d", n.ID, code)
			}
		}
		n.Restart()
		process.AwaitMembers(t, 10*time.Second, nodes...)
	}
	awaitAll(t, c, len(nodes))
	cancel()
	wg.Wait()
}

// awaitAll returns when the client can ask so many nodes, and knows of no more.
func awaitAll(t *testing.T, c *client.Client, nodes int) {
	process.Await(t, 20*time.Second, func() error { // it looks for nodes every 10 s or so
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
