package client_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/client"
)

// foreign returns the addresses of nodes that the client does not ask because they are of another cluster.
func foreign(c *client.Client) (addresses string) {
	for _, node := range c.Stats().Nodes {
		if node.Problem != nil && strings.Contains(node.Problem.Error(), "another cluster") {
			addresses += node.Address + " "
		}
	}
	return strings.TrimSpace(addresses)
}

// rest waits in a bubble, and for what is to happen by then.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A node of another cluster takes the address of one that died, which the client was given, and has its id.
func TestForeignNode(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].kill()
		n.members(nodes[1:]...)
		stranger := n.startOf(foreignCluster, "a", "a:1")
		for range 100 {
			rest(1300 * time.Millisecond)
			askMany(t, c, "alice", 5)
		}
		if got := stranger.asked.Load(); got != 0 || foreign(c) != "a:1" {
			t.Errorf("the stranger was asked %d times; foreign are %q", got, foreign(c))
		}
	})
}

// The first node that is reached belongs to another cluster than the two others.
func TestMostNodesNameTheCluster(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network, _ []*fakeNode) {
		stranger := n.startOf(foreignCluster, "x", "a:1")
		c := n.client("a:1", client.WithSeeds("b:1", "c:1"), client.WithoutDiscovery())
		allowed(t, c, "alice")
		b, d := n.start("b"), n.start("c")
		rest(5 * time.Second)
		stranger.asked.Store(0)
		askMany(t, c, "alice", 100)
		if b.asked.Load() == 0 || d.asked.Load() == 0 || stranger.asked.Load() != 0 || foreign(c) != "a:1" {
			t.Errorf("asked %d, %d and the stranger %d times; foreign are %q", b.asked.Load(), d.asked.Load(), stranger.asked.Load(), foreign(c))
		}
	})
}

// A cluster whose nodes are all gone for a minute was replaced, unless the client was told which one it is.
func TestReplacedCluster(t *testing.T) {
	for name, opts := range map[string][]client.Option{"learned": nil, "given": {client.WithCluster(homeCluster)}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
				c := n.client("a:1", opts...)
				allowed(t, c, "alice")
				nodes[0].kill()
				rest(100 * time.Millisecond)
				next := n.startOf(foreignCluster, "a", "a:1")
				rest(55 * time.Second)
				if r, err := c.Check(t.Context(), request("alice")); err != nil || !client.Undecided(r) {
					t.Errorf("%v, %v before a minute was over, want no node's answer", r, err)
				}
				rest(10 * time.Second)
				r, err := c.Check(t.Context(), request("alice"))
				if want := opts != nil; err != nil || client.Undecided(r) != want || next.asked.Load() > 0 == want {
					t.Errorf("%v, %v after a minute; the new node was asked %d times", r, err, next.asked.Load())
				}
			})
		})
	}
}
