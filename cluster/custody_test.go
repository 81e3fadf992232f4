package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// custodyCluster is a cluster of whole nodes but for the API, in a bubble: real gRPC and links
// over connections in memory, and a registry that tells at once.
type custodyCluster struct {
	*testCluster
	registry *fakeRegistry
	log      syncBuffer
	starts   map[string]uint64 // by id
	alive    map[string]*custodyNode
	wg       sync.WaitGroup
	losing   atomic.Bool // whether nothing arrives that custody sends
}

type custodyNode struct {
	testNode
	custody    *Custody
	membership *Membership
	node       Node
	stop       context.CancelFunc
	leased     bool          // whether its lease is being renewed; guarded by mu
	halted     chan struct{} // closed when it goes on, nil if it runs; guarded by mu
}

// halt stops a node as a signal does: it receives nothing, and does not look at the clock.
func (n *custodyNode) halt() (goOn func()) {
	halted := make(chan struct{})
	n.mu.Lock()
	n.halted = halted
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		n.halted = nil
		n.mu.Unlock()
		close(halted)
	}
}

// runs returns when the node runs, or never is closed.
func (n *custodyNode) runs(never <-chan struct{}) {
	for {
		n.mu.Lock()
		halted := n.halted
		n.mu.Unlock()
		if halted == nil {
			return
		}
		select {
		case <-halted:
		case <-never:
			return
		}
	}
}

// haltingConn is a connection of a node that may be halted.
type haltingConn struct {
	net.Conn
	node   *custodyNode
	closed context.Context
	end    context.CancelFunc
}

func (n *custodyNode) halting(conn net.Conn) *haltingConn {
	closed, end := context.WithCancel(context.Background())
	return &haltingConn{conn, n, closed, end}
}

func (c *haltingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.node.runs(c.closed.Done())
	return n, err
}

func (c *haltingConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// haltingListener is what a node listens on that may be halted.
type haltingListener struct {
	net.Listener
	node *custodyNode
}

func (l haltingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.node.halting(conn), nil
}

// dials returns what the node dials by.
func (n *custodyNode) dials(dial func(ctx context.Context, from, address string) (net.Conn, error)) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, n.id, address)
		if err != nil {
			return nil, err
		}
		return n.halting(conn), nil
	}
}

var custodyRing = ring.Params{Partitions: 64, ReplicationFactor: 20, Load: 1.25}

func inCustody(t *testing.T, f func(t *testing.T, c *custodyCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &custodyCluster{
			testCluster: newEmptyCluster(t),
			registry:    &fakeRegistry{nodes: make(map[string]Node)},
			starts:      make(map[string]uint64),
			alive:       make(map[string]*custodyNode),
		}
		f(t, c)
		for id := range c.alive {
			c.crash(id)
		}
		c.wg.Wait()
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
}

// start starts nodes, and announces them as ready.
func (c *custodyCluster) start(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.starts[id]++
		n := c.launch(id, c.starts[id])
		c.follow(n)
		c.registry.Announce(n.node)
	}
}

// follow tells a node what the registry holds.
func (c *custodyCluster) follow(n *custodyNode) {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	c.registry.watchers = append(c.registry.watchers, n.membership.Update)
}

// launch starts a node of which the registry does not know.
func (c *custodyCluster) launch(id string, incarnation uint64) *custodyNode {
	c.t.Helper()
	s, err := shard.New(shard.Config{Partitions: uint32(custodyRing.Partitions), MaxBytes: 16 << 20, Metrics: prometheus.NewRegistry()})
	if err != nil {
		c.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&c.log, nil)).With("node", id)
	n := &custodyNode{testNode: testNode{id: id, shard: s, promises: NewPromises(true, true)}, leased: true}
	n.node = Node{ID: id, Address: id + ":1", Incarnation: incarnation, State: Ready}
	n.router = NewRouter(RouterConfig{
		Self: id, Local: s, Promises: n.promises, Dial: n.dials(c.dial), AttemptTimeout: DefaultAttemptTimeout,
		Logger: log, Metrics: prometheus.NewRegistry(),
	})
	n.custody = NewCustody(CustodyConfig{
		Self:  Member{ID: id, Address: n.node.Address, Incarnation: n.node.Incarnation},
		Shard: s, Router: n.router, Promises: n.promises,
		Refound: func(ctx context.Context, view uint64, parts []uint32) error {
			return n.membership.Refound(ctx, view, parts)
		},
		Adopted: func(*View) {},
		Renewed: func() time.Time {
			n.runs(nil)
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.leased {
				return time.Now()
			}
			return time.Time{}
		},
		Dial: n.dials(c.dialRaw), Logger: log, Metrics: prometheus.NewRegistry(),
	}, custodyRing.Partitions)
	n.membership = NewMembership(id, custodyRing, c.registry, n.router, n.custody.Adopt, log)
	n.links = NewServer(s, n.promises, n.router)
	n.server = grpc.NewServer(grpc.Creds(n.links.Credentials(insecure.NewCredentials())))
	n.custody.Register(n.server)
	l := newPipeListener()
	c.mu.Lock()
	c.listeners[n.node.Address] = l
	c.mu.Unlock()
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	c.wg.Go(func() { _ = n.server.Serve(haltingListener{l, n}) })
	c.wg.Go(func() { n.custody.Run(ctx) })
	c.wg.Go(func() { n.membership.Run(ctx) })
	c.alive[id] = n
	return n
}

// crash ends a node without a word.
func (c *custodyCluster) crash(id string) {
	n := c.alive[id]
	delete(c.alive, id)
	c.mu.Lock()
	c.listeners[n.node.Address].Close()
	delete(c.listeners, n.node.Address)
	c.mu.Unlock()
	n.stop()
	n.links.Close()
	n.server.Stop()
	n.router.Close()
}

// leave has a node hand over what it holds, and then end.
func (c *custodyCluster) leave(id string) {
	c.t.Helper()
	n := c.alive[id]
	c.announce(n, Leaving)
	c.await("all was handed over by "+id, n.handedOver)
	c.end(id)
}

func (c *custodyCluster) announce(n *custodyNode, s State) {
	n.node.State = s
	c.registry.Announce(n.node)
}

func (n *custodyNode) handedOver() bool {
	s := n.custody.Standing()
	return s.Held+s.Leaving == 0
}

// end ends a node that has handed over all.
func (c *custodyCluster) end(id string) {
	c.announce(c.alive[id], Left)
	synctest.Wait()
	c.crash(id)
	c.registry.expire(id)
}

func (c *custodyCluster) dialRaw(ctx context.Context, from, address string) (net.Conn, error) {
	way := [2]string{from, address}
	c.mu.Lock()
	l, cut := c.listeners[address], c.cuts[way]
	c.mu.Unlock()
	if l == nil || cut {
		return nil, fmt.Errorf("%s: connection refused", address)
	}
	conn, err := l.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.links[way] = append(c.links[way], conn)
	return lossyConn{conn, c.losing.Load, new(atomic.Bool)}, nil
}

// lossyConn loses all from when lossy says so for the first time, as TCP may for long: it waits
// ever longer before it sends something again.
type lossyConn struct {
	net.Conn
	lossy func() bool
	stuck *atomic.Bool
}

func (c lossyConn) loses() bool {
	if c.lossy() {
		c.stuck.Store(true)
	}
	return c.stuck.Load()
}

func (c lossyConn) Write(b []byte) (int, error) {
	if c.loses() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c lossyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.loses() {
			return n, err
		}
	}
}

// replicated waits until the standbys have what was counted, also those that were restarted.
func (c *custodyCluster) replicated() { time.Sleep(heartbeatEvery + 2*replicateEvery) }

// await waits for at most 10 s.
func (c *custodyCluster) await(what string, condition func() bool) {
	c.t.Helper()
	for began := time.Now(); !condition(); {
		if time.Since(began) > 10*time.Second {
			c.t.Errorf("10 s later it is not so that %s", what)
			c.t.Log(c.log.String())
			c.t.FailNow()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// settled waits until isSettled.
func (c *custodyCluster) settled() {
	c.t.Helper()
	c.await("every partition is held once, by its owner", c.isSettled)
}

// isSettled reports whether every partition is held once, by its owner, and all nodes have one
// view.
func (c *custodyCluster) isSettled() bool {
	synctest.Wait()
	holders := make([]int, custodyRing.Partitions)
	first := c.any().router.View()
	for _, n := range c.alive {
		v, s := n.router.View(), n.custody.Standing()
		if v == nil || v.Number != first.Number || len(v.Members) != len(c.alive) || s.Wanted+s.Leaving > 0 {
			return false
		}
		for p := range holders {
			if n.shard.IsOpen(uint32(p)) {
				holders[p]++
			}
		}
	}
	return !slices.ContainsFunc(holders, func(n int) bool { return n != 1 })
}

// any returns some node that reaches all others, as those do that call themselves ready.
func (c *custodyCluster) any() (some *custodyNode) {
	for _, some = range c.alive {
		if _, reachable := some.router.Members(); len(reachable) > 0 && !slices.Contains(reachable, false) {
			break
		}
	}
	return some
}

var custodyLimit = algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 10, Window: int64(time.Hour)}

func custodyKey(i int) ring.Key {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	return ring.Key{Hi: r.Uint64(), Lo: r.Uint64()}
}

// check asks some node, and returns whether it is allowed and who has decided.
func (c *custodyCluster) check(key ring.Key) (bool, shard.Source) { return c.checkAt(c.any(), key) }

func (c *custodyCluster) checkAt(n *custodyNode, key ring.Key) (bool, shard.Source) {
	g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: custodyLimit, Cost: 1, OnFailure: shard.FailOpen}}}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n.router.Decide(ctx, g)
	return g[0].Allowed, g[0].Takes[0].Source
}

// take takes n of each key, which must all be decided, and returns how many were allowed by key.
func (c *custodyCluster) take(allowed map[ring.Key]int, keys, n int) {
	c.t.Helper()
	for i := range keys {
		for range n {
			ok, source := c.check(custodyKey(i))
			if ok {
				allowed[custodyKey(i)]++
			}
			if source == shard.Unanswered {
				c.t.Errorf("nobody decided about key %d", i)
			}
		}
	}
}

// exact complains about keys of which not want was allowed.
func (c *custodyCluster) exact(allowed map[ring.Key]int, keys, want int) {
	c.t.Helper()
	for i := range keys {
		if got := allowed[custodyKey(i)]; got != want {
			c.t.Errorf("key %d: %d were allowed, not %d", i, got, want)
		}
	}
}

func TestHandOverWhenNodesJoinAndLeave(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 4)
		c.start("d")
		c.take(allowed, keys, 1)
		c.settled()
		c.take(allowed, keys, 1)
		c.start("e")
		c.settled()
		c.take(allowed, keys, 1)
		c.leave("a")
		c.take(allowed, keys, 1)
		c.settled()
		c.leave("d")
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

func TestRollingRestart(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 6)
		for _, id := range []string{"a", "b", "c"} {
			c.leave(id)
			c.start(id)
			c.settled()
		}
		c.take(allowed, keys, 6)
		c.exact(allowed, keys, 10)
	})
}

// TestTakeover kills an owner, waits until its lease has ended, and looks whether anything was
// forgotten that was replicated.
func TestTakeover(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 7)
		time.Sleep(2 * replicateEvery)
		c.crash("b")
		c.take(allowed, keys, 1) // the standbys decide
		time.Sleep(5 * time.Second)
		c.take(allowed, keys, 1)
		c.registry.expire("b")
		time.Sleep(goneGrace + recheck)
		c.take(allowed, keys, 1) // the new owners, from their copies
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestRestartAtOnce kills an owner and starts it again under its id before anybody notices.
func TestRestartAtOnce(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 7)
		time.Sleep(2 * replicateEvery)
		c.crash("b")
		c.start("b")
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestRestartedOwnerHasNoCopies asks for used up keys while a restarted owner may not make its
// tokens anew yet: the standbys know of them, and the owner does not.
func TestRestartedOwnerHasNoCopies(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		time.Sleep(2 * replicateEvery)
		c.crash("b")
		c.start("b")
		provisional := 0
		for began := time.Now(); time.Since(began) < authorityTerm/2; time.Sleep(50 * time.Millisecond) {
			for i := range keys {
				for _, n := range c.alive {
					if _, reachable := n.router.Members(); len(reachable) == 0 || slices.Contains(reachable, false) {
						continue // nobody asks it yet
					}
					ok, source := c.checkAt(n, custodyKey(i))
					allowed[custodyKey(i)] += int(boolByte(ok))
					provisional += int(boolByte(source == shard.Provisional))
				}
			}
		}
		if provisional == 0 {
			t.Error("no standby was asked")
		}
		c.settled()
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestRestartedStandbyIsSentCopies kills the owners of what a restarted standby had copies of, and
// that nobody has asked for since.
func TestRestartedStandbyIsSentCopies(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		for _, id := range []string{"b", "c", "a"} {
			time.Sleep(2 * replicateEvery)
			c.crash(id)
			c.start(id)
			c.settled()
		}
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestLostWhileItMoves kills a node of which a new one has fetched only part of what it is to have:
// of the rest, which the new one owns, others have copies.
func TestLostWhileItMoves(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		time.Sleep(2 * replicateEvery)
		c.start("d")
		c.await("d is a member", func() bool { return len(c.alive["a"].router.View().members()) == 4 })
		c.crash("c")
		time.Sleep(4 * acquireEvery) // d has asked for copies
		c.take(allowed, keys, 1)
		c.registry.expire("c")
		c.settled()
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestReplicatedUntilItMoves kills an owner before a newcomer has fetched anything from it. It stands by for what goes to that, and until then
// who stood by before goes on to be told.
func TestReplicatedUntilItMoves(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.start("d")
		a, dying, slow := c.alive["a"], c.alive["c"], c.alive["d"].custody
		slow.mu.Lock()
		for p := range slow.parts {
			slow.parts[p].pulling = true // so it fetches nothing else
		}
		slow.mu.Unlock()
		c.await("d is a member, and answers", func() bool { return len(a.router.View().members()) == 4 && a.router.Reaches("d") })
		v, by, moving := a.router.View(), dying.custody.Deciding(), []ring.Key(nil)
		for i := range 200 {
			k := custodyKey(i)
			if p := k.Partition(uint32(custodyRing.Partitions)); by[p] != 0 && v.Members[v.Ring.Owner(p)].ID == "d" && v.Members[v.Ring.Standby(p)].ID == "c" {
				moving = append(moving, k)
			}
		}
		if len(moving) < 5 {
			t.Errorf("%d of 200 keys are to move from c to d", len(moving))
		}
		for _, k := range moving {
			for range custodyLimit.Limit {
				if ok, source := c.checkAt(a, k); !ok || source != shard.Owner {
					t.Errorf("allowed %t by %v", ok, source)
				}
			}
		}
		time.Sleep(2 * urgentEvery)
		c.crash("c")
		for _, k := range moving {
			if ok, source := c.checkAt(a, k); ok || source != shard.Provisional {
				t.Errorf("after the death of its holder: allowed %t by %v", ok, source)
			}
		}
	})
}

// TestLossyConnectionIsMadeAnew loses what nodes send for a while, so that their connections are
// of no use any more, although they are open.
func TestLossyConnectionIsMadeAnew(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.losing.Store(true)
		time.Sleep(30 * time.Second)
		c.losing.Store(false)
		healed := time.Now()
		time.Sleep(5 * time.Second)
		k := c.alive["a"].custody
		k.mu.Lock()
		defer k.mu.Unlock()
		for id, heard := range k.evidence.heard {
			if heard.Before(healed) {
				t.Errorf("%s was heard %v before it could be heard again", id, healed.Sub(heard))
			}
		}
	})
}

// load is callers that ask all the time, some node each time.
type load struct {
	nodes     atomic.Pointer[[]*custodyNode] // that are asked
	stop      chan struct{}
	callers   sync.WaitGroup
	mu        sync.Mutex
	allowed   map[ring.Key]int // guarded by mu
	asked     int              // guarded by mu
	undecided int              // guarded by mu
}

// begin begins to ask for so many keys, every 1 to 20 ms by each of so many callers.
func (c *custodyCluster) begin(keys, callers int) *load {
	l := &load{stop: make(chan struct{}), allowed: make(map[ring.Key]int)}
	c.ask(l)
	for i := range callers {
		l.callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(time.Duration(1+r.IntN(20)) * time.Millisecond):
				}
				key, nodes := custodyKey(r.IntN(keys)), *l.nodes.Load()
				ok, source := c.checkAt(nodes[r.IntN(len(nodes))], key)
				l.mu.Lock()
				l.asked++
				l.allowed[key] += int(boolByte(ok))
				l.undecided += int(boolByte(source == shard.Unanswered))
				l.mu.Unlock()
			}
		})
	}
	return l
}

// ask has all nodes asked that reach all others, but one.
func (c *custodyCluster) ask(l *load, but ...string) {
	var nodes []*custodyNode
	for id, n := range c.alive {
		if _, reachable := n.router.Members(); !slices.Contains(reachable, false) && !slices.Contains(but, id) {
			nodes = append(nodes, n)
		}
	}
	l.nodes.Store(&nodes)
}

func (l *load) end() {
	close(l.stop)
	l.callers.Wait()
}

// TestHandOverUnderLoad asks from many sides while nodes come and go.
func TestHandOverUnderLoad(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 40
		c.start("a", "b", "c")
		c.settled()
		l := c.begin(keys, 16)
		for _, id := range []string{"d", "e"} {
			time.Sleep(20 * time.Millisecond)
			c.start(id)
			c.settled()
			c.ask(l)
		}
		for _, id := range []string{"a", "d"} {
			time.Sleep(20 * time.Millisecond)
			c.ask(l, id)
			c.leave(id)
			c.settled()
		}
		l.end()
		if l.asked < 20*keys || l.undecided > 0 {
			t.Errorf("%d asked, %d not decided", l.asked, l.undecided)
		}
		c.exact(l.allowed, keys, 10)
	})
}

// TestLostBeforeFetched kills the first node before the others have fetched much from it.
func TestLostBeforeFetched(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("b")
		c.settled()
		c.start("a", "c")
		c.await("all are members, and the others have met", func() bool {
			a, d := c.alive["a"].router, c.alive["c"].router
			return len(a.View().members()) == 3 && a.Reaches("c") && d.Reaches("a")
		})
		if c.isSettled() {
			t.Error("all was fetched before")
		}
		c.crash("b")
		time.Sleep(2 * acquireEvery) // until they know that nobody has a copy of what b has owned or stood by for
		c.take(allowed, keys, 1)
		c.registry.expire("b")
		c.await("b is no member", func() bool { return len(c.alive["a"].router.View().members()) == 2 })
		c.take(allowed, keys, 3)
		c.settled()
		c.take(allowed, keys, 10)
		for i := range keys { // what was answered too late, or apart, is a tenth at most
			if n := allowed[custodyKey(i)]; n < 9 || n > 11 {
				t.Errorf("key %d: %d of 10 were allowed", i, n)
			}
		}
	})
}

// TestLeavingWithTheLastCopy has a node leave that has the only copies of what a restarted owner has lost, while the standby that
// takes its place has only what it had when it stood by long ago.
func TestLeavingWithTheLastCopy(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "c")
		c.settled()
		c.take(allowed, keys, 4)
		c.replicated()
		c.start("b")
		c.settled()
		c.take(allowed, keys, 3)
		c.replicated()
		c.crash("a")
		c.start("a")
		c.await("a is admitted anew", func() bool {
			v := c.alive["b"].router.View()
			i, member := v.Index("a")
			return member && v.Members[i].Incarnation == 2
		})
		b := c.alive["b"]
		c.losing.Store(true) // so that nobody can fetch them yet
		c.announce(b, Leaving)
		c.await("b leaves", func() bool {
			b.custody.mu.Lock()
			defer b.custody.mu.Unlock()
			return b.custody.leaving()
		})
		if s := b.custody.Standing(); s.Leaving <= b.holds() {
			t.Errorf("%+v: it does not wait until others have its copies, but for the %d partitions that it holds", s, b.holds())
		}
		c.losing.Store(false)
		c.leave("b")
		c.take(allowed, keys, 10)
		c.settled()
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// holds returns how many tokens a node has.
func (n *custodyNode) holds() (tokens int) {
	n.custody.mu.Lock()
	defer n.custody.mu.Unlock()
	for p := range n.custody.parts {
		tokens += int(boolByte(n.custody.parts[p].token.state != absent))
	}
	return tokens
}

// unheld starts three nodes and kills the first one. It returns another one, a partition that this owns by the new view and nobody holds,
// since it is too early, and the colleague that stands by for it.
func (c *custodyCluster) unheld() (k *Custody, p uint32, standby *colleague) {
	c.t.Helper()
	c.start("a", "b", "c")
	c.settled()
	c.replicated()
	c.crash("a")
	c.registry.expire("a")
	k = c.alive["b"].custody
	c.await("a is no member", func() bool { return len(k.Router.View().members()) == 2 })
	k.mu.Lock()
	defer k.mu.Unlock()
	for p := range k.parts {
		if k.parts[p].token.mayCreate(k.claim(uint32(p))) {
			return k, uint32(p), k.peers["c"]
		}
	}
	c.t.Fatal("b is to make nothing anew")
	return nil, 0, nil
}

// TestNotMadeAnewWhileItIsFetched looks for a copy twice at once.
func TestNotMadeAnewWhileItIsFetched(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		k, p, standby := c.unheld()
		if !k.begin(p) {
			t.Fatal("it is being fetched already")
		}
		k.recover(t.Context(), []whereabouts{{partition: p, safe: true, best: standby, version: version{1 << 40, 1, true}}}, true)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.parts[p].token.state == active {
			t.Error("it is made anew from half a copy")
		}
		k.parts[p].pulling = false
	})
}

// TestFlushWaitsForNoneButItsStandby has a standby go on at once although another one is not reached.
func TestFlushWaitsForNoneButItsStandby(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		a, b := c.alive["a"], c.alive["b"]
		goOn := c.alive["c"].halt()
		c.await("c is not reached", func() bool { return !b.router.Reaches("c") && !a.router.Reaches("c") })
		flushed := make(chan struct{})
		go func() { defer close(flushed); b.custody.Flush(t.Context()) }()
		time.Sleep(urgentEvery)
		asked := 0
		for i := range 100 {
			p := custodyKey(i).Partition(uint32(custodyRing.Partitions))
			if v := a.router.View(); v.Members[v.Ring.Owner(p)].ID != "b" || v.Members[v.Ring.Standby(p)].ID != "a" {
				continue
			}
			asked++
			if ok, source := c.checkAt(a, custodyKey(i)); !ok || source != shard.Provisional {
				t.Errorf("key %d: allowed %v by %d", i, ok, source)
			}
		}
		if asked == 0 {
			t.Error("there is no such key")
		}
		goOn()
		<-flushed
	})
}

// TestGrantsOfSeveral fetches what a node has granted whose copy is not the best one: it counts on top of that, and nobody else tells it.
func TestGrantsOfSeveral(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		k, p, other := c.unheld()
		key := custodyKey(0)
		for i := 1; key.Partition(uint32(custodyRing.Partitions)) != p; i++ {
			key = custodyKey(i)
		}
		decide := func(n *Custody, cost int64) int64 {
			n.Shard.Withhold(p, false)
			g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: custodyLimit, Cost: cost}}, Provisional: true}}
			n.Shard.Decide(g)
			return custodyLimit.Limit - g[0].Takes[0].Decision.Remaining
		}
		there := c.alive["c"].custody
		decide(k, 2)
		decide(there, 3)
		there.mu.Lock()
		there.parts[p].copy = version{gen: 1, seq: 1, whole: true}
		there.enclose(p, there.Shard.Grants(p, maxGrantBatch))
		there.mu.Unlock()
		decide(there, 1) // kept apart, as the others are under way
		found, _ := k.locate(t.Context(), []uint32{p})
		if len(found[0].grantors) != 1 || found[0].grantors[0] != other {
			t.Fatalf("%+v", found[0])
		}
		if !k.begin(p) {
			t.Fatal("it is being fetched already")
		}
		k.collect(t.Context(), &found[0])
		if used := decide(k, 0); used != 2+3+1 {
			t.Errorf("%d are used where 2, 3 and 1 were granted", used)
		}
		k.mu.Lock()
		k.parts[p].pulling = false
		told := len(k.outbox[p].grants)
		k.mu.Unlock()
		there.mu.Lock()
		defer there.mu.Unlock()
		if told != 2 || len(there.outbox[p].grants) > 0 || there.Shard.HasGrants(p) || there.parts[p].copyAt != k.party {
			t.Errorf("%d grants are to be told, %d by the other; the copy is said to be at %v", told, len(there.outbox[p].grants), there.parts[p].copyAt)
		}
	})
}

// TestWhatIsWantedIsLookedForOnce has a node own what it is to make anew, and then stand by for it.
func TestWhatIsWantedIsLookedForOnce(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		k, p, _ := c.unheld()
		k.mu.Lock()
		v := *k.view
		k.mu.Unlock()
		v.Number++
		owner, standby := v.Ring.Tables()
		owner, standby = slices.Clone(owner), slices.Clone(standby)
		owner[p], standby[p] = standby[p], owner[p]
		var err error
		if v.Ring, err = ring.FromTables(owner, standby, len(v.Members)); err != nil {
			t.Fatal(err)
		}
		k.Adopt(&v)
		k.mu.Lock()
		k.parts[p].copy.whole = false
		k.mu.Unlock()
		wanted := k.wanted()
		if !slices.Contains(wanted, p) || !slices.Contains(k.bare(nil), p) {
			t.Fatalf("partition %d is not both wanted and without a copy", p)
		}
		if slices.Contains(k.bare(wanted), p) {
			t.Errorf("partition %d is looked for twice", p)
		}
	})
}

// TestOneOfTwoCopiesDecides gives an owner that holds nothing yet and its standby copies that are as good.
func TestOneOfTwoCopiesDecides(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		k, p, standby := c.unheld()
		has := version{1 << 40, 7, true}
		decides := func(of version) (best bool, holder string) {
			k.mu.Lock()
			k.parts[p].copy, k.parts[p].fresh, k.parts[p].copyAt = has, true, party{}
			w := whereabouts{partition: p, own: has, version: has}
			w.note(&colleague{member: Member{ID: "x"}}, &peerv1.Located{Generation: uint64(has.gen), Sequence: 8, Whole: true}, k.party, k.view)
			w.note(standby, &peerv1.Located{Generation: uint64(of.gen), Sequence: of.seq, Whole: of.whole}, k.party, k.view)
			k.mu.Unlock()
			if of.seq == 8 && of.whole && w.best != standby {
				t.Error("of two copies that are as good, another one than the standby's comes first")
			}
			w.best = nil
			k.noteCopies([]whereabouts{w}, false)
			_, best = k.Copy(p)
			holder, _ = k.Holder(p)
			return best, holder
		}
		for _, of := range []version{has, {has.gen, 8, true}} {
			if best, holder := decides(of); best || holder != "b" {
				t.Errorf("beside a standby with %v: best %v, and %q is said to have it", of, best, holder)
			}
		}
		for _, of := range []version{{has.gen, 6, true}, {has.gen, 8, false}} {
			if best, _ := decides(of); !best {
				t.Errorf("beside a standby with %v: nobody decides", of)
			}
		}
		decides(has)
		c.crash("c")
		c.await("c is known not to answer", func() bool { return !k.Router.Reaches("c") })
		if _, best := k.Copy(p); !best {
			t.Error("beside a standby that does not answer: nobody decides")
		}
	})
}

// TestFlush ends a node that cannot hand over anything, because etcd is away.
func TestFlush(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		time.Sleep(2 * replicateEvery)
		c.take(allowed, keys, 7)
		b := c.alive["b"]
		b.custody.Flush(t.Context())
		c.take(allowed, keys, 1)
		if s := b.custody.Standing(); s.Held > 0 {
			t.Errorf("%d partitions are still held", s.Held)
		}
		c.crash("b")
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestCopyOfANodeThatEnds has a node stand by without a copy, for one that is about to end.
func TestCopyOfANodeThatEnds(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b", "c")
		c.settled()
		k, p := c.alive["c"].custody, uint32(0)
		k.mu.Lock()
		for k.view.Members[k.view.Ring.Owner(p)].ID != "a" || k.view.Members[k.view.Ring.Standby(p)].ID != "c" {
			p++
		}
		k.parts[p].copy, k.parts[p].fresh = version{}, false
		has := &peerv1.Located{Generation: 1 << 40, Sequence: 7, Whole: true}
		ending := &peerv1.Located{Generation: 1 << 40, Sequence: 7, Whole: true, Ending: true}
		find := func(owner *peerv1.Located, other *peerv1.Located) *whereabouts {
			w := &whereabouts{partition: p}
			w.note(k.peers["a"], owner, k.party, k.view)
			if other != nil {
				w.note(k.peers["b"], other, k.party, k.view)
			}
			return w
		}
		cases := []struct {
			w    *whereabouts
			from string // "" if nothing is fetched
		}{
			{find(has, has), ""},
			{find(ending, nil), "a"},
			{find(ending, has), "b"},
			{find(ending, ending), "a"},
		}
		matched := cases[1].w.matched
		k.mu.Unlock()
		for i, tc := range cases {
			if lacks := k.lacksCopy(tc.w); lacks != (tc.from != "") || lacks && tc.w.best.member.ID != tc.from {
				t.Errorf("case %d: to be fetched %v, the best one is at %s", i, lacks, tc.w.best.member.ID)
			}
		}
		if matched {
			t.Error("another node is said to have a copy, which is about to end")
		}
	})
}

// TestRestartedStandbyAsksWhoHasIt has the standby of a dead owner restart, while the one that the owner has not fetched it from is
// there, and sends it what it decides.
func TestRestartedStandbyAsksWhoHasIt(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b", "c", "d")
		c.settled()
		c.replicated()
		before := c.alive["b"].router.View()
		c.crash("d")
		c.announce(c.alive["b"], Leaving)
		time.Sleep(time.Second)
		c.crash("c")
		c.start("c")
		node := c.alive["c"]
		c.await("c reaches a and b", func() bool { return node.router.Reaches("a") && node.router.Reaches("b") })
		c.replicated()
		v, asked := node.router.View(), 0
		for i := range 400 {
			k := custodyKey(i)
			p := k.Partition(uint32(custodyRing.Partitions))
			owner, standby := v.Members[v.Ring.Owner(p)].ID, v.Members[v.Ring.Standby(p)].ID
			if before.Members[before.Ring.Owner(p)].ID != "b" || owner != "d" || standby != "c" {
				continue
			}
			asked++
			if _, source := c.checkAt(node, k); source != shard.Owner && source != shard.Standby {
				t.Errorf("key %d is not decided by b, but by source %d", i, source)
			}
		}
		if asked == 0 {
			t.Error("there is no such key")
		}
	})
}

// grantOf is a grant of so many tokens of the i-th key.
func grantOf(i int, tokens int64) shard.Grant {
	now := time.Now().UnixNano()
	return shard.Grant{Key: custodyKey(i), Limit: custodyLimit, State: algorithms.Charge(&custodyLimit, algorithms.State{}, now, now, tokens)}
}

// TestGrantsCountOnce sends a batch of grants again, as after an answer that was lost, and one of
// the next life of its sender, which numbers its batches anew.
func TestGrantsCountOnce(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a")
		c.settled()
		a := c.alive["a"]
		send := func(incarnation, batch uint64) {
			resp, err := peerServer{k: a.custody}.AddGrants(t.Context(), &peerv1.AddGrantsRequest{
				Caller:    &peerv1.Caller{Id: "b", Incarnation: incarnation},
				Partition: custodyKey(1).Partition(uint32(custodyRing.Partitions)), Batch: batch,
				Grants: appendGrants(nil, []shard.Grant{grantOf(1, 3)}),
			})
			if err != nil || !resp.GetAdded() {
				t.Errorf("%v, %v", resp, err)
			}
		}
		send(1, 7)
		send(1, 7)
		send(2, 1)
		allowed := make(map[ring.Key]int)
		for range 10 {
			ok, _ := c.check(custodyKey(1))
			allowed[custodyKey(1)] += int(boolByte(ok))
		}
		if got := allowed[custodyKey(1)]; got != 4 {
			t.Errorf("%d of 10 are left after grants of 3 and 3", got)
		}
	})
}

// TestLastGrantsOfAFencedHolder has a view begin a new epoch for partitions that a dead node owns, which was restarted, while a living one still
// holds them: it leaves, and could not hand them over. What that has granted last, the standby is told.
func TestLastGrantsOfAFencedHolder(t *testing.T) {
	for _, pause := range []time.Duration{0, 3 * replicateEvery} { // of which the standby is sent all before
		t.Run(pause.String(), func(t *testing.T) {
			inCustody(t, func(t *testing.T, c *custodyCluster) {
				c.start("a", "b", "c", "d")
				c.settled()
				c.replicated()
				c.crash("d")
				leaver, asker := c.alive["c"], c.alive["a"]
				c.announce(leaver, Leaving)
				synctest.Wait()
				time.Sleep(pause)
				allowed, keys := make(map[ring.Key]int), []ring.Key(nil)
				count := func(n *custodyNode, key ring.Key) bool {
					ok, source := c.checkAt(n, key)
					if source == shard.Unanswered {
						t.Errorf("nobody decides what %s is asked", n.id)
						return false
					}
					allowed[key] += int(boolByte(ok))
					return ok
				}
				for i := range 200 {
					key := custodyKey(i)
					p := key.Partition(uint32(custodyRing.Partitions))
					leaver.custody.mu.Lock()
					theirs := leaver.custody.parts[p].token.state == active && leaver.custody.claim(p).owner.id == "d"
					leaver.custody.mu.Unlock()
					if theirs && count(asker, key) {
						keys = append(keys, key)
					}
				}
				if len(keys) == 0 {
					t.Fatal("the leaver holds nothing that the dead node owns")
				}
				c.start("d")
				synctest.Wait()
				for _, key := range keys {
					count(leaver, key)
				}
				c.await("all was handed over", leaver.handedOver)
				c.end("c")
				for range 2 {
					for _, key := range keys {
						for count(asker, key) {
						}
						if allowed[key] != 10 {
							t.Errorf("%d were allowed of 10", allowed[key])
						}
					}
					c.settled()
				}
			})
		})
	}
}

// TestWhoIsSaidToHoldIt forgets who was believed to hold a partition once that has said that it does not.
func TestWhoIsSaidToHoldIt(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b")
		c.settled()
		k := c.alive["a"].custody
		k.mu.Lock()
		was := k.parts[1]
		k.parts[1].from, k.parts[1].token.state = "b", absent
		k.mu.Unlock()
		for _, tc := range []struct {
			holding peerv1.Holding
			want    string
		}{{peerv1.Holding_HOLDING_PENDING, "b"}, {peerv1.Holding_HOLDING_ABSENT, ""}} {
			w := whereabouts{partition: 1, from: "b"}
			k.mu.Lock()
			w.note(k.peers["b"], &peerv1.Located{Holding: tc.holding}, k.party, k.view)
			k.mu.Unlock()
			k.noteCopies([]whereabouts{w}, false)
			k.mu.Lock()
			if got := k.parts[1].from; got != tc.want {
				t.Errorf("after %v it is believed to be with %q", tc.holding, got)
			}
			k.mu.Unlock()
		}
		k.mu.Lock()
		k.parts[1] = was
		k.mu.Unlock()
	})
}

// TestCopyAt has a node know that it is itself who has the copy that a new standby lacks, whose clients would be told else that nobody decides.
func TestCopyAt(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].custody
		k.mu.Lock()
		was := k.parts[1]
		k.mu.Unlock()
		for _, tc := range []struct {
			state        tokenState
			whole, fresh bool
			at, want     string
		}{
			{absent, true, true, "", "a"}, {absent, true, true, "b", "b"}, {absent, true, false, "", ""}, {absent, false, true, "", ""}, {active, true, true, "", ""},
		} {
			k.mu.Lock()
			pt := &k.parts[1]
			pt.token.state, pt.copy.whole, pt.fresh, pt.copyAt.id = tc.state, tc.whole, tc.fresh, tc.at
			k.mu.Unlock()
			if got := k.CopyAt(1); got != tc.want {
				t.Errorf("%+v: %q", tc, got)
			}
		}
		k.mu.Lock()
		k.parts[1] = was
		k.mu.Unlock()
	})
}

// TestGrantsUnderWayStayInTheCopy has an owner send what it has while a batch of grants is on its way to it, and after it has added that, whether
// or not its answer has arrived.
func TestGrantsUnderWayStayInTheCopy(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a")
		c.settled()
		k, key := c.alive["a"].custody, custodyKey(1)
		p := key.Partition(uint32(custodyRing.Partitions))
		owner, err := shard.New(shard.Config{Partitions: uint32(custodyRing.Partitions), MaxBytes: 16 << 20, Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		k.mu.Lock()
		was := k.parts[p]
		k.parts[p].token.state, k.parts[p].copy = absent, version{gen: 1}
		k.Shard.Close(p)
		k.mu.Unlock()
		seq := uint64(0)
		replica := func(added uint64) (used int64) {
			owner.Follow(p, shard.ToStandby)
			records, _ := owner.Changes(p, shard.ToStandby, nil, recordBytes)
			seq++
			_, err := peerServer{k: k}.Replicate(t.Context(), &peerv1.ReplicateRequest{Caller: &peerv1.Caller{Id: "b"}, Replicas: []*peerv1.Replica{
				{Partition: p, Generation: 1 << 30, Sequence: seq, Records: records, Begin: seq == 1, Whole: true, Added: delivery{k.origin, added}.message("a")},
			}})
			if err != nil {
				t.Fatal(err)
			}
			g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: custodyLimit}}, Peek: true, Provisional: true}}
			k.Shard.Decide(g)
			return custodyLimit.Limit - g[0].Takes[0].Decision.Remaining
		}
		owner.Decide([]shard.Group{{Takes: []shard.Take{{Key: key, Limit: custodyLimit, Cost: 1}}}})
		replica(0)
		k.Shard.Decide([]shard.Group{{Takes: []shard.Take{{Key: key, Limit: custodyLimit, Cost: 3}}, Provisional: true}})
		k.mu.Lock()
		k.enclose(p, k.Shard.Grants(p, maxGrantBatch))
		o := k.outbox[p]
		k.mu.Unlock()
		if used := replica(o.batch - 1); used != 1+3 {
			t.Errorf("%d are used of the copy while 3 are on their way to an owner that has granted 1", used)
		}
		if owner.AddGrants(o.grants); replica(o.batch) != 1+3 || len(k.outbox) != 0 {
			t.Errorf("%d are used of the copy after the owner has added 3 to 1, and %d batches are on their way", replica(o.batch), len(k.outbox))
		}
		k.mu.Lock()
		k.parts[p] = was
		k.mu.Unlock()
	})
}

// TestHolderOfWhatWasLost has an owner that was restarted, and has nothing of a partition, name itself: so
// its standby is asked. Before, or with a copy, it knows of nobody.
func TestHolderOfWhatWasLost(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].custody
		k.mu.Lock()
		was := k.parts[1]
		k.mu.Unlock()
		for _, tc := range []struct {
			restarted bool
			gen       Generation
			want      string
		}{{false, 0, ""}, {true, 0, "a"}, {true, 1, ""}} {
			k.mu.Lock()
			pt := &k.parts[1]
			pt.token.state, pt.restarted, pt.copy.gen = absent, tc.restarted, tc.gen
			k.mu.Unlock()
			if id, known := k.Holder(1); id != tc.want || known != (id != "") {
				t.Errorf("restarted %v, a copy of %d: %q, %v", tc.restarted, tc.gen, id, known)
			}
		}
		k.mu.Lock()
		k.parts[1] = was
		k.mu.Unlock()
	})
}

// TestGrantsStayWhileTheOwnerIsAway keeps what was granted in the place of an owner that does not answer in the copy, whoever else
// answers.
func TestGrantsStayWhileTheOwnerIsAway(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		c.crash("c")
		c.take(allowed, keys, 2)
		time.Sleep(3 * replicateEvery)
		for _, id := range []string{"a", "b"} {
			k := c.alive[id].custody
			k.mu.Lock()
			if !k.Shard.KeepsGrants() || len(k.outbox) > 0 {
				t.Errorf("%s keeps grants: %v, and has %d batches on their way to a dead node", id, k.Shard.KeepsGrants(), len(k.outbox))
			}
			k.mu.Unlock()
		}
	})
}

// brokenStream is a stream that the other side has left.
type brokenStream struct {
	grpc.ServerStreamingServer[peerv1.PullResponse]
}

func (brokenStream) Send(*peerv1.PullResponse) error { return io.ErrClosedPipe }

// TestCopyThatDoesNotArrive keeps what a copy is worth, and what was granted from it.
func TestCopyThatDoesNotArrive(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].custody
		k.mu.Lock()
		k.parts[1].copy.whole = true
		k.enclose(1, []shard.Grant{grantOf(1, 3)})
		k.mu.Unlock()
		if err := k.giveCopy(brokenStream{}, 1, party{}); err == nil {
			t.Error("it is said to have arrived")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.parts[1].copy.whole || len(k.outbox[1].grants) != 1 {
			t.Errorf("copy %+v, %d grants", k.parts[1].copy, len(k.outbox[1].grants))
		}
		key := custodyKey(0)
		for i := 1; key.Partition(uint32(custodyRing.Partitions)) != 1; i++ {
			key = custodyKey(i)
		}
		k.Shard.Close(1)
		g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: custodyLimit, Cost: 1}}, Provisional: true}}
		if k.Shard.Decide(g); g[0].Takes[0].Source != shard.Provisional {
			t.Errorf("nothing is decided from it any more: %+v", g[0])
		}
	})
}

// openStream is a stream to a side that takes everything.
type openStream struct {
	grpc.ServerStreamingServer[peerv1.PullResponse]
}

func (openStream) Send(*peerv1.PullResponse) error { return nil }

// TestGrantsAreToldByOne has a copy fetched, and grants told of that are part of it, which both would tell.
func TestGrantsAreToldByOne(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].custody
		k.mu.Lock()
		k.parts[1].token.state = absent
		k.enclose(1, []shard.Grant{grantOf(1, 3)})
		batch := k.outbox[1].batch
		k.mu.Unlock()
		if !k.post(1, batch) {
			t.Fatal("they are not to be told")
		}
		if err := k.giveCopy(openStream{}, 1, party{}); status.Code(err) != codes.Unavailable {
			t.Errorf("the copy goes while they are told: %v", err)
		}
		if k.begin(1) {
			t.Error("a copy comes while they are told")
		}
		k.posted(1)
		if err := k.giveCopy(openStream{}, 1, party{}); err != nil {
			t.Error(err)
		}
		if k.post(1, batch) {
			t.Error("they are told by both")
		}
	})
}

// Where a view comes after the members were asked, a token is not made anew by what they have said before it: of its epoch nobody may know yet.
func TestNotMadeAnewForAnotherEpoch(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b", "c")
		c.settled()
		k := c.alive["a"].custody
		c.crash("b")
		c.registry.expire("b")
		creates := func() (p uint32, epoch uint64, some bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			for p := range k.parts {
				if claim := k.claim(uint32(p)); k.parts[p].token.mayCreate(claim) {
					return uint32(p), claim.epoch, true
				}
			}
			return 0, 0, false
		}
		c.await("a is to make a token anew", func() bool { _, _, some := creates(); return some })
		p, epoch, _ := creates()
		k.mu.Lock()
		k.settled[epoch], k.settled[epoch-1] = time.Time{}, time.Now().Add(-time.Minute)
		k.mu.Unlock()
		if !k.mayRecover(p, epoch, true) {
			t.Error("it may not, though all have answered")
		}
		if k.mayRecover(p, epoch, false) {
			t.Error("it may of an epoch that no majority knows yet, though not all have answered")
		}
		if k.mayRecover(p, epoch-1, true) {
			t.Error("it may by what was said in the epoch before")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.create(p, epoch-1) || k.parts[p].token.state != absent {
			t.Error("it is made for the epoch before")
		}
	})
}

// A caller with a newer view, which this node does not reach, hears from it while it waits.
func TestHeartbeatOfAnUnreachableCaller(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b")
		c.settled()
		goOn := c.alive["b"].halt()
		began := time.Now()
		resp, err := peerServer{k: c.alive["a"].custody}.Heartbeat(t.Context(), &peerv1.HeartbeatRequest{Caller: &peerv1.Caller{Id: "b", Address: "b:1", View: 99}})
		if took := time.Since(began); err != nil || resp.GetView() == 0 || took > callTimeout/2 {
			t.Errorf("%v after %v: %v", resp, took, err)
		}
		goOn()
	})
}

// What was not cleared for grants of others is a copy still if the better one does not arrive.
func TestBetterCopyThatDoesNotArrive(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b")
		c.settled()
		c.replicated()
		k := c.alive["a"].custody
		k.mu.Lock()
		p := slices.IndexFunc(k.parts, func(h holding) bool { return h.token.state == absent && h.copy.whole })
		had, b := k.parts[p].copy, k.peers["b"]
		k.mu.Unlock()
		c.crash("b")
		if err := k.copy(t.Context(), &whereabouts{partition: uint32(p), best: b, grantors: []*colleague{b}}); err == nil {
			t.Error("it has arrived")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if got := k.parts[p].copy; got != had {
			t.Errorf("the copy is %+v, was %+v", got, had)
		}
	})
}

// Who fetches pauses the longer the longer it takes and the more others fetch from the same member, but neither for long at a time nor
// for long in all.
func TestFetchPause(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		took                 time.Duration
		fetching, partitions int
		want                 time.Duration
	}{
		{0, 1, 1, fetchEvery},
		{ms, 1, 85, fetchEvery},
		{4 * ms, 1, 85, 8 * ms},
		{time.Second, 1, 85, fetchEveryMost},
		{ms, 4, 56, 4 * fetchEvery},
		{time.Second, 4, 40, 4 * fetchEveryMost},
		{time.Second, 127, 2, fetchPauseMost},
		{time.Second, 2, 500, fetchWithin / 500},
	} {
		if got := fetchPause(tc.took, tc.fetching, tc.partitions); got != tc.want {
			t.Errorf("%v, %d fetch %d: %v, want %v", tc.took, tc.fetching, tc.partitions, got, tc.want)
		}
	}
}
