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
	"google.golang.org/grpc/credentials/insecure"

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
	lossy    atomic.Bool // whether nothing arrives that custody sends
}

type custodyNode struct {
	testNode
	custody    *Custody
	membership *Membership
	node       Node
	stop       context.CancelFunc
	leased     bool // whether its lease is being renewed; guarded by mu
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
		Self: id, Local: s, Promises: n.promises, Dial: func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, id, address) }, AttemptTimeout: DefaultAttemptTimeout,
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
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.leased {
				return time.Now()
			}
			return time.Time{}
		},
		Dial: func(ctx context.Context, address string) (net.Conn, error) { return c.dialRaw(ctx, id, address) }, Logger: log, Metrics: prometheus.NewRegistry(),
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
	c.wg.Go(func() { _ = n.server.Serve(l) })
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
	return lossyConn{conn, &c.lossy, new(atomic.Bool)}, nil
}

// lossyConn loses all from when lossy is true for the first time, as TCP may for long: it waits
// ever longer before it sends something again.
type lossyConn struct {
	net.Conn
	lossy *atomic.Bool
	stuck *atomic.Bool
}

func (c lossyConn) loses() bool {
	if c.lossy.Load() {
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

// TestLossyConnectionIsMadeAnew loses what nodes send for a while, so that their connections are
// of no use any more, although they are open.
func TestLossyConnectionIsMadeAnew(t *testing.T) {
	inCustody(t, func(t *testing.T, c *custodyCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.lossy.Store(true)
		time.Sleep(30 * time.Second)
		c.lossy.Store(false)
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

// TestLostBeforeFetched kills the first node before the others have fetched anything from it.
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
		c.crash("b")
		c.take(allowed, keys, 1)
		c.registry.expire("b")
		c.await("b is no member", func() bool { return len(c.alive["a"].router.View().members()) == 2 })
		c.take(allowed, keys, 3)
		c.settled()
		c.take(allowed, keys, 10)
		c.exact(allowed, keys, 10)
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
		c.alive["b"].custody.Flush(t.Context())
		c.crash("b")
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
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
		if err := k.giveCopy(brokenStream{}, 1); err == nil {
			t.Error("it is said to have arrived")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.parts[1].copy.whole || len(k.outbox[1].grants) != 1 {
			t.Errorf("copy %+v, %d grants", k.parts[1].copy, len(k.outbox[1].grants))
		}
	})
}
