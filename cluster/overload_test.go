package cluster

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// outcomes counts takes by source, and those whose group was allowed although nobody
// had decided it.
type outcomes struct {
	owner, overloaded, unanswered, through atomic.Int64
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
				o.unanswered.Add(1)
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
				time.Sleep(time.Millisecond) // of somebody who was refused too
			}
		})
	}
	wg.Wait()
	return &o
}

// An owner that is asked for more than it can answer in time is given what it can,
// and the rest is refused: nobody gets through because of it.
func TestOverloadIsRefusedNotLetThrough(t *testing.T) {
	for _, perTake := range []time.Duration{4 * time.Microsecond, 10 * time.Microsecond} {
		inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
			c.nodes[2].perTake.Store(int64(perTake))
			c.flood(10, 20*time.Millisecond) // 1000 at a time: the pace becomes known
			const while = 200 * time.Millisecond
			o := c.flood(200, while)
			if n := o.unanswered.Load(); n != 0 || o.through.Load() != 0 {
				t.Errorf("%v each: %d late, %d let through, %d answered, %d refused", perTake, n, o.through.Load(), o.owner.Load(), o.overloaded.Load())
			}
			if n := o.overloaded.Load(); n == 0 {
				t.Errorf("%v each: nobody was refused", perTake)
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
		if took := time.Since(start); groups[0].Takes[0].Source != shard.Unanswered || took != 0 {
			t.Errorf("%+v after %v", groups[0], took)
		}
		if o := <-done; o.unanswered.Load() == 0 || c.nodes[0].router.Reaches("c") {
			t.Errorf("%d late, breaker open %v", o.unanswered.Load(), !c.nodes[0].router.Reaches("c"))
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

// Late behind much else that is being answered is an overload; late with nobody
// before, or while nothing is answered, is not, and counts against the peer.
func TestLateIsOverloadOnlyOfABusyPeer(t *testing.T) {
	const attempt = DefaultAttemptTimeout
	t0 := time.Unix(1000, 0)
	for _, tc := range []struct {
		name    string
		ahead   int           // takes before the question
		heard   time.Duration // the peer's last answer, since the question was asked
		woke    time.Duration // since it was asked
		want    shard.Source
		counted int
	}{
		{"behind others", fullFrame, time.Millisecond, attempt, shard.Overloaded, 0},
		{"behind few", 10, time.Millisecond, attempt, shard.Unanswered, 1},
		{"nothing is answered", fullFrame, -time.Millisecond, attempt, shard.Unanswered, 1},
		{"this node slept", 10, -time.Millisecond, attempt + attempt/4, shard.Unanswered, 0},
		{"this node slept over much", fullFrame, -time.Millisecond, attempt + attempt/4, shard.Overloaded, 0},
		{"this node dozed", 10, -time.Millisecond, attempt + attempt/5, shard.Unanswered, 1},
	} {
		l := newLane(nil, attempt)
		l.closed.Store(true)
		l.breaker.closed = true
		others, a := &ask{sent: t0, due: t0.Add(attempt)}, &ask{sent: t0, due: t0.Add(attempt), done: make(chan struct{}, 1)}
		if _, err := l.enqueue(others, []*shard.Group{{Takes: make([]shard.Take, tc.ahead)}}, nil); err != nil {
			t.Fatal(err)
		}
		g := &shard.Group{Takes: make([]shard.Take, 1)}
		first, err := l.enqueue(a, []*shard.Group{g}, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.breaker.heard = t0.Add(tc.heard)
		late := l.giveUp(a, first, t0.Add(tc.woke))
		if late != 1 || g.Takes[0].Source != tc.want || l.breaker.timeouts != tc.counted {
			t.Errorf("%s: source %d, %d late, %d counted", tc.name, g.Takes[0].Source, late, l.breaker.timeouts)
		}
	}
}
