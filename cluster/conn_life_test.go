package cluster

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// restart names a later life of a node in the view, and returns the node that is that life, which is not served yet. The earlier life is
// not ended: its connections are open.
func (c *testCluster) restart(i int) (later *testNode) {
	c.t.Helper()
	later = c.newNode(c.nodes[i].id, c.nodes[i].greeter.Self().Incarnation+1, nil, NewGivenDenialLeases(true, true))
	c.nodes[i] = later
	return later
}

// name has the view name these lives of the nodes.
func (c *testCluster) name() {
	var members []Member
	for _, n := range c.nodes {
		members = append(members, Member{ID: n.id, Address: n.id + ":1", Incarnation: n.greeter.Self().Incarnation})
	}
	c.setView(members)
}

// What has waited behind the frame under way is not sent to an earlier life, and nothing more is queued for it.
func TestQueueForALaterLife(t *testing.T) {
	ended := 0
	c := newConn(nil, DefaultAttemptTimeout)
	c.conn, _ = net.Pipe()
	c.end, c.notice = func() { ended++ }, func() {}
	c.breaker.healthy, c.unacked = true, maxUnacked
	c.healthy.Store(true)
	c.incarnation.Store(6)
	now := time.Now()
	a := &call{sent: now, due: now.Add(time.Hour), done: make(chan struct{}, 1)}
	groups := []*shard.Group{{Takes: []shard.Take{take(ring.Key{Lo: 1}, 10, 1)}}}
	for _, named := range []uint64{5, 6} {
		if c.name(named); ended > 0 {
			t.Errorf("the view names incarnation %d, and the connection to 6 has ended", named)
		}
	}
	if _, err := c.enqueue(a, groups, nil); err != nil {
		t.Fatal(err)
	}
	c.name(7)
	c.greet(now) // the later life calls, and the connection to the earlier one has not ended yet
	c.tick()
	c.unacked = 0
	if frame, _ := c.takeFrame(maxFrame); ended != 1 || len(frame) > 0 {
		t.Errorf("a frame of %d bytes is sent, and the session was ended %d times", len(frame), ended)
	}
	if _, err := c.enqueue(a, groups, nil); !errors.Is(err, errOpen) {
		t.Error(err)
	}
	if err := c.giveBack(groups[0].Takes, 0); !errors.Is(err, errOpen) {
		t.Error(err)
	}
	// It was dialed before the view, and has connected after it.
	for said, want := range map[uint64]int{6: 1, 7: 0, 8: 0} {
		ended = 0
		c.useLocked(&greetedConn{c.conn, introduction{incarnation: said}})
		if ended != want {
			t.Errorf("a connection to incarnation %d has ended %d times, want %d", said, ended, want)
		}
	}
}

// A connection to an earlier life of a member, which goes on, carries no take any more from the view on that names a later life.
func TestEarlierLifeIsNotAsked(t *testing.T) {
	for _, answers := range []bool{true, false} { // whether the later life answers at the address of both
		inCluster(t, func(t *testing.T, c *testCluster) {
			asker, earlier, key := c.nodes[0], c.nodes[1], c.ownedBy(c.nodes[1], 0)
			asker.ask(t.Context(), take(key, 10, 1))
			before := earlier.takes.Load()
			later := c.restart(1)
			if answers {
				c.serve(later)
			}
			c.name()
			g, took := asker.ask(t.Context(), take(key, 10, 1))
			if g.Takes[0].Source != shard.Undecided || took != 0 {
				t.Errorf("just after the view: %+v after %v", g, took)
			}
			time.Sleep(time.Second)
			want := shard.Undecided
			if answers {
				want = shard.Owner
			}
			if g, _ := asker.ask(t.Context(), take(key, 10, 1)); g.Takes[0].Source != want || asker.router.Reaches("b") != answers {
				t.Errorf("the later life answers: %v, and it is asked: %+v", answers, g)
			}
			if n := earlier.takes.Load() - before; n != 0 {
				t.Errorf("the earlier life was asked for %d groups of the later one", n)
			}
			if !answers {
				c.serve(later) // for close
			}
			earlier.router.Close()
			earlier.conns.Close()
			earlier.server.Stop()
			synctest.Wait()
		})
	}
}

// A node that goes on after the registry has lost it, while its id is started again, is asked by no member: checks are decided by the later life.
func TestMembersLeaveAnEarlierLife(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		earlier := c.alive["b"]
		earlier.mu.Lock()
		earlier.leased = false
		earlier.mu.Unlock()
		c.registry.mu.Lock()
		c.registry.watchers[1] = func(RegistryContent) {}
		c.registry.mu.Unlock()
		c.start("b")
		c.settled()
		before := earlier.takes.Load()
		for i := range 20 {
			for _, k := range c.keysOf("b", "c", 2) {
				if g, took := c.alive["a"].ask(t.Context(), take(k, 100, 1)); g.Takes[0].Source != shard.Owner || took != 0 {
					t.Errorf("check %d: %v after %v", i, g.Takes[0].Source, took)
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := earlier.takes.Load() - before; n != 0 {
			t.Errorf("the earlier life was asked %d times", n)
		}
		earlier.stop()
		earlier.conns.Close()
		earlier.server.Stop()
		earlier.router.Close()
	})
}
