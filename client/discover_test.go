package client_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/cluster"
)

func TestWithoutDiscovery(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("b:1", client.WithoutDiscovery(), client.WithSeeds("c:1"))
		askMany(t, c, "alice", 100)
		if nodes[0].asked.Load() != 0 || nodes[1].asked.Load() == 0 || nodes[2].asked.Load() == 0 {
			t.Error("want b and c asked, and a not")
		}
	})
}

func TestMembersComeAndGo(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		d := n.start("d")
		n.members(nodes[0], d)
		time.Sleep(14 * time.Second)
		nodes[1].asked.Store(0)
		askMany(t, c, "alice", 100)
		if nodes[1].asked.Load() != 0 || d.asked.Load() == 0 {
			t.Errorf("b, who left, was asked %d times, and d, who came, %d times", nodes[1].asked.Load(), d.asked.Load())
		}
		var got []string
		for _, node := range c.Stats().Nodes {
			got = append(got, node.Address)
		}
		if want := []string{"a:1", "d:1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}

		e := n.start("e") // and as soon as a node is missed
		n.members(nodes[0], e)
		d.kill()
		time.Sleep(time.Second)
		askMany(t, c, "alice", 100)
		if e.asked.Load() == 0 {
			t.Error("e is not asked")
		}
	})
}

// All nodes are replaced at once, soon after the new ones came, as in a roll-out: no check is without an answer.
func TestAllNodesAreReplaced(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithSeeds("b:1", "c:1"))
		d := n.start("d")
		n.members(append(nodes, d)...)
		askMany(t, c, "alice", 10)
		time.Sleep(time.Second)
		for _, old := range nodes {
			old.kill()
		}
		synctest.Wait() // until the client has noticed
		askMany(t, c, "alice", 10)
		if got := c.Stats(); got.Undecided != 0 || d.asked.Load() < 10 {
			t.Errorf("d was asked %d times: %+v", d.asked.Load(), got)
		}
	})
}

// The nodes are listed once in each view, however many answers there are.
func TestListsOncePerView(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		n.listTime.Store(int64(5 * time.Millisecond))
		n.members(nodes...)
		listed := n.listed.Load()
		for range 1000 {
			askMany(t, c, "alice", 1)
			time.Sleep(time.Millisecond)
		}
		if got := n.listed.Load() - listed; got != 1 {
			t.Errorf("the nodes were listed %d times", got)
		}
	})
}

// What no node lists is asked for again less and less often, once per node.
func TestNodesThatDoNotList(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithConnections(4))
		n.members(nodes...)
		n.membersGone()
		n.listsWithin(c, 2*8, 2*13)
	})
}

// Neither is a node asked all the time that lists them in an earlier view than another one routes by.
func TestListOfAnEarlierView(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].lags.Store(nodes[0].View())
		n.members(nodes...)
		n.membersGone()
		n.listsWithin(c, 2*8, 2*13)
	})
}

// A cluster that is founded again counts its views from 1 again. Its clients learn of its nodes as soon as of those of another one, once some time has passed.
func TestViewsThatBeginAgain(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		n.mu.Lock()
		n.views = 1000
		n.mu.Unlock()
		n.members(nodes...)
		askMany(t, c, "alice", 10)
		time.Sleep(time.Second)
		n.mu.Lock()
		n.views = 0
		n.mu.Unlock()
		n.members(nodes...)
		for range 90 {
			askMany(t, c, "alice", 10)
			time.Sleep(time.Second)
		}
		d := n.start("d")
		n.members(append(nodes, d)...)
		n.asksWithin(c, d, 2*time.Second)
	})
}

// listsWithin has a client ask for a minute, and expects that nodes are asked that often for a list.
func (n *network) listsWithin(c *client.Client, least, most int64) {
	n.t.Helper()
	listed := n.listed.Load()
	for range 600 {
		askMany(n.t.(*testing.T), c, "alice", 5)
		time.Sleep(100 * time.Millisecond)
	}
	if got := n.listed.Load() - listed; got < least || got > most {
		n.t.Errorf("nodes were asked %d times for a list, want %d to %d", got, least, most)
	}
}

// A member that is not known to serve yet is asked soon after it is.
func TestNewMemberIsSoonAsked(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithSeeds("b:1"))
		d := n.start("d")
		n.keys = []cluster.Node{{ID: "d", Address: "d:1", Incarnation: 1, State: cluster.Ready}}
		n.joining.Store(true)
		n.members(append(nodes, d)...)
		askMany(t, c, "alice", 10)
		time.Sleep(600 * time.Millisecond)
		if n.joining.Store(false); d.asked.Load() != 0 {
			t.Error("d is asked before it serves")
		}
		n.asksWithin(c, d, 2*time.Second)
	})
}

// Nodes that were late just when they were to list the nodes are asked again soon.
func TestLateNodesListAgain(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithSeeds("b:1"), client.WithTimeout(2*time.Second))
		d := n.start("d")
		n.members(append(nodes, d)...)
		askMany(t, c, "alice", 10)
		time.Sleep(150 * time.Millisecond)
		for _, f := range nodes {
			f.hold()
		}
		var asking sync.WaitGroup
		asking.Go(func() { askMany(t, c, "alice", 20) })
		time.Sleep(450 * time.Millisecond)
		for _, f := range nodes {
			f.release()
		}
		asking.Wait()
		n.asksWithin(c, d, 2*time.Second)
	})
}

// asksWithin expects that a client asks a node soon.
func (n *network) asksWithin(c *client.Client, f *fakeNode, most time.Duration) {
	n.t.Helper()
	for began := time.Now(); f.asked.Load() == 0; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > most {
			n.t.Fatalf("%s is not asked after %v", f.id, most)
		}
		askMany(n.t.(*testing.T), c, "alice", 10)
	}
}

// A node that left has time to answer what it was asked.
func TestLeftWhileUnderWay(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithTimeout(2*time.Second))
		nodes[1].hold()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { allowed(t, c, "alice") })
		}
		synctest.Wait()
		n.members(nodes[0])
		nodes[2].kill() // now it looks for nodes
		time.Sleep(500 * time.Millisecond)
		nodes[1].release()
		wg.Wait()
		if s := c.Stats(); nodes[1].asked.Load() == 0 || s.Retried != 0 || len(s.Nodes) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Only members that stay are asked; a node that knows of none changes nothing.
func TestMembersThatAreUsed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		joins := n.start("d")
		n.keys = []cluster.Node{
			{ID: "b", Address: "b:1", Incarnation: 1, State: cluster.Ready},
			{ID: "c", Address: "c:1", Incarnation: 1, State: cluster.Leaving},
			{ID: "d", Address: "d:1", Incarnation: 1, State: cluster.Ready},
			{ID: "e", Address: "e:1", Incarnation: 1, State: cluster.Joining},
		}
		c := n.client("a:1")
		known := func() (addresses []string) {
			for _, node := range c.Stats().Nodes {
				addresses = append(addresses, node.Address)
			}
			return addresses
		}
		want := []string{"a:1", "b:1"}
		if got := known(); !slices.Equal(got, want) || joins.asked.Load() != 0 {
			t.Errorf("got %q, want %q", got, want)
		}
		n.mu.Lock()
		n.view = nil
		n.mu.Unlock()
		time.Sleep(14 * time.Second)
		if got := known(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A node that cannot be reached from here, or behind whose address is another one, is
// not asked; nor is the seed under a second address.
func TestUnreachable(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network, _ []*fakeNode) {
		seed := n.startAt("a", "forwarded:1")
		stranger := n.startAt("z", "b:1")
		n.members(&fakeNode{id: "a", address: "a:1"}, &fakeNode{id: "b", address: "b:1"}, &fakeNode{id: "c", address: "c:1"})
		c := n.client("forwarded:1")
		askMany(t, c, "alice", 100)
		if seed.asked.Load() != 100 || stranger.asked.Load() != 0 {
			t.Errorf("the seed was asked %d times, the stranger %d times", seed.asked.Load(), stranger.asked.Load())
		}
		var got []string
		for _, node := range c.Stats().Nodes {
			got = append(got, fmt.Sprint(node.Address, node.Problem != nil))
		}
		if want := []string{"b:1true", "c:1true", "forwarded:1false"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
