package cluster

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// outcomes counts takes by source, and those whose group was allowed undecided.
type outcomes struct {
	owner, overloaded, undecided, through atomic.Int64
}

func (o *outcomes) add(groups []shard.Group) {
	for i := range groups {
		for _, t := range groups[i].Takes {
			switch t.Source {
			case shard.Owner:
				o.owner.Add(1)
				continue
			case shard.Overloaded:
				o.overloaded.Add(1)
			default:
				o.undecided.Add(1)
			}
			if groups[i].Allowed {
				o.through.Add(1)
			}
		}
	}
}

// flood asks node a about keys of node c in so many concurrent batches of 100, each
// again as soon as it is answered, for a while.
func (c *testCluster) flood(callers int, during time.Duration) *outcomes {
	keys := make([]ring.Key, 100)
	for i := range keys {
		keys[i] = c.ownedBy(c.nodes[2], i)
	}
	var o outcomes
	var wg sync.WaitGroup
	end := time.Now().Add(during)
	for range callers {
		wg.Go(func() {
			for time.Now().Before(end) {
				groups := make([]shard.Group, len(keys))
				for i, k := range keys {
					groups[i].Takes = []shard.Take{take(k, 1<<30, 1)}
				}
				c.nodes[0].router.Decide(c.t.Context(), groups)
				o.add(groups)
				time.Sleep(time.Millisecond) // of a caller that was refused too
			}
		})
	}
	wg.Wait()
	return &o
}

// An owner that is asked for more than it can answer in time is given what it can, and the rest is refused:
// none is allowed because of it.
func TestOverloadIsNotFailOpen(t *testing.T) {
	for _, perTake := range []time.Duration{4 * time.Microsecond, 10 * time.Microsecond} {
		if testform.RaceEnabled && perTake < 10*time.Microsecond {
			continue // the same code for more takes
		}
		inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
			c.nodes[2].perTake.Store(int64(perTake))
			c.flood(10, 20*time.Millisecond) // 1000 at a time: the pace becomes known
			const while = 200 * time.Millisecond
			o := c.flood(200, while)
			if n := o.undecided.Load(); n != 0 || o.through.Load() != 0 {
				t.Errorf("%v each: %d late, %d allowed undecided, %d answered, %d refused", perTake, n, o.through.Load(), o.owner.Load(), o.overloaded.Load())
			}
			if n := o.overloaded.Load(); n == 0 {
				t.Errorf("%v each: none was refused", perTake)
			}
			if served, could := o.owner.Load(), int64(while/perTake); served < could*9/10 {
				t.Errorf("%v each: %d answered, the owner could %d", perTake, served, could)
			}
			if !c.nodes[0].router.Reaches("c") {
				t.Error("the breaker is open")
			}
		})
	}
}

// An owner that does not answer is no overload, however much waits for it: what comes
// after an attempt is late, as before, and the breaker opens.
func TestStalledOwnerIsNoOverload(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		resume := c.nodes[2].stall()
		done := make(chan *outcomes)
		go func() { done <- c.flood(100, 4*DefaultAttemptTimeout) }()
		time.Sleep(DefaultAttemptTimeout + time.Millisecond)
		groups := make([]shard.Group, maxPending+1)
		for i := range groups {
			groups[i].Takes = []shard.Take{take(c.ownedBy(c.nodes[2], 0), 10, 1)}
		}
		start := time.Now()
		c.nodes[0].router.Decide(t.Context(), groups)
		if took := time.Since(start); groups[0].Takes[0].Source != shard.Undecided || took != 0 {
			t.Errorf("%+v after %v", groups[0], took)
		}
		if o := <-done; o.undecided.Load() == 0 || c.nodes[0].router.Reaches("c") {
			t.Errorf("%d late, breaker open %v", o.undecided.Load(), !c.nodes[0].router.Reaches("c"))
		}
		resume()
		synctest.Wait()
	})
}

// What comes alone is taken in, however slow the peer was.
func TestALargeBatchAloneIsNoOverload(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		c.nodes[2].perTake.Store(int64(20 * time.Microsecond))
		c.flood(2, 20*time.Millisecond)
		c.nodes[2].perTake.Store(0)
		groups := make([]shard.Group, 2*minBacklog)
		for i := range groups {
			groups[i].Takes = []shard.Take{take(c.ownedBy(c.nodes[2], 0), 1<<30, 1)}
		}
		c.nodes[0].router.Decide(t.Context(), groups)
		for _, g := range groups {
			if g.Takes[0].Source != shard.Owner {
				t.Fatalf("%+v", g)
			}
		}
	})
}

// Late behind much else that is being answered is an overload; late with no
// other check before it, or while nothing is answered, is not, and counts against the peer.
func TestLateIsOverloadOnlyOfABusyPeer(t *testing.T) {
	const attempt = DefaultAttemptTimeout
	t0 := time.Unix(1000, 0)
	for _, tc := range []struct {
		name    string
		ahead   int           // takes before the request
		heard   time.Duration // the peer's last answer, since the request was asked
		woke    time.Duration // since it was asked
		busy    time.Duration // for how long a frame has waited for a busy peer; 0 if neither node is busy
		want    shard.Source
		counted int
	}{
		{"behind others", fullFrame, time.Millisecond, attempt, 0, shard.Overloaded, 0},
		{"behind few", 10, time.Millisecond, attempt, 0, shard.Undecided, 1},
		{"nothing is answered", fullFrame, -time.Millisecond, attempt, 0, shard.Undecided, 1},
		{"this node slept", 10, -time.Millisecond, attempt + attempt/4, 0, shard.Undecided, 0},
		{"this node slept over much", fullFrame, -time.Millisecond, attempt + attempt/4, 0, shard.Overloaded, 0},
		{"a peer is busy", 10, -time.Millisecond, attempt, attempt, shard.Overloaded, 0},
		{"a peer is busy, and this one silent", 10, -time.Millisecond, attempt, busySilence, shard.Undecided, 1},
		{"this node dozed", 10, -time.Millisecond, attempt + attempt/5, 0, shard.Undecided, 1},
	} {
		c := newConn(nil, attempt)
		c.healthy.Store(true)
		c.breaker.healthy = true
		others, a := &call{sent: t0, due: t0.Add(attempt)}, &call{sent: t0, due: t0.Add(attempt), done: make(chan struct{}, 1)}
		if _, err := c.enqueue(others, []*shard.Group{{Takes: make([]shard.Take, tc.ahead)}}, nil); err != nil {
			t.Fatal(err)
		}
		g := &shard.Group{Takes: make([]shard.Take, 1)}
		first, err := c.enqueue(a, []*shard.Group{g}, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.breaker.heard = t0.Add(tc.heard)
		if tc.busy > 0 {
			c.pacer.sending(t0.Add(attempt - tc.busy))
			c.busy = t0.Add(busyFor)
		}
		late := c.giveUp(a, first, t0.Add(tc.woke))
		if late != 1 || g.Takes[0].Source != tc.want || c.breaker.timeouts != tc.counted {
			t.Errorf("%s: source %d, %d late, %d counted", tc.name, g.Takes[0].Source, late, c.breaker.timeouts)
		}
	}
}

// askTimes asks node a about a key of node c several times, and returns the source of each answer.
func (c *testCluster) askTimes(n int) (sources []shard.Source) {
	for range n {
		g, _ := c.nodes[0].ask(c.t.Context(), take(c.ownedBy(c.nodes[2], 0), 1000, 1))
		if g.Takes[0].Source == shard.Overloaded && g.Allowed {
			c.t.Error("overloaded and allowed")
		}
		sources = append(sources, g.Takes[0].Source)
	}
	return sources
}

// A node that has too much to do itself refuses what it is late with, and takes no peer for dead because of it.
func TestBusyNodeRefusesLateChecks(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		c.nodes[0].busy.Store(true)
		resume := c.nodes[2].stall()
		start := time.Now()
		if got := c.askTimes(5); slices.ContainsFunc(got, func(s shard.Source) bool { return s != shard.Overloaded }) {
			t.Errorf("answered by %v", got)
		}
		if took := time.Since(start); took > DefaultAttemptTimeout {
			t.Errorf("refused after %v, although one was late already", took)
		}
		if !c.nodes[0].router.Reaches("c") {
			t.Error("the breaker is open")
		}
		resume()
		synctest.Wait()
		if got := c.askTimes(1); got[0] != shard.Owner {
			t.Errorf("answered by %v", got)
		}
	})
}

// An owner that has too much to do says so, and what it is late with is refused for a while after that.
func TestBusyOwnerReportsOverload(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		c.nodes[2].busy.Store(true)
		if got := c.askTimes(1); got[0] != shard.Owner {
			t.Fatalf("answered by %v", got)
		}
		c.nodes[2].busy.Store(false)
		for _, tc := range []struct {
			after time.Duration
			want  shard.Source
		}{{0, shard.Overloaded}, {busyFor, shard.Undecided}} {
			time.Sleep(tc.after)
			resume := c.nodes[2].stall()
			if got := c.askTimes(1); got[0] != tc.want {
				t.Errorf("%v later answered by %v, not %v", tc.after, got[0], tc.want)
			}
			resume()
			synctest.Wait()
		}
	})
}

// A peer that is dead or cut off is not busy, although other nodes are: what it does not answer is decided by the failure policy.
func TestDeadPeerOfABusyNode(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		c.nodes[0].busy.Store(true)
		c.nodes[2].busy.Store(true)
		c.askTimes(1)
		resume := c.nodes[2].stall() // its machine is gone: nothing says that the connection has ended
		c.askTimes(1)
		time.Sleep(busySilence)
		if got := c.askTimes(1); got[0] != shard.Undecided {
			t.Errorf("silent for %v, answered by %v", busySilence, got)
		}
		time.Sleep(silence)
		if c.nodes[0].router.Reaches("c") {
			t.Error("the breaker is not open")
		}
		resume()
		synctest.Wait()
	})
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		c.nodes[0].busy.Store(true)
		c.nodes[2].busy.Store(true)
		c.askTimes(1)
		c.kill(c.nodes[2])
		synctest.Wait()
		start := time.Now()
		if got := c.askTimes(1); got[0] != shard.Undecided || time.Since(start) != 0 {
			t.Errorf("killed, answered by %v after %v", got, time.Since(start))
		}
	})
}
