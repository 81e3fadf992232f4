package cluster

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// strictLimit is one of 1000 a second.
var strictLimit = algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1000, Window: int64(time.Second)}

// strictCluster are three nodes, and a counter that one of them owns.
type strictCluster struct {
	*ownershipCluster
	key            ring.Key
	limit          algorithms.Limit
	owner, standby *ownershipNode
	other          *ownershipNode
	granted        atomic.Int64
	slowest        atomic.Int64 // of the calls, in nanoseconds
	undecided      atomic.Int64
	calls          sync.WaitGroup
}

func inStrictCluster(t *testing.T, f func(t *testing.T, c *strictCluster)) {
	inOwners(t, func(t *testing.T, cc *ownershipCluster) {
		c := &strictCluster{ownershipCluster: cc, key: ownershipKey(0), limit: strictLimit}
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		v := c.any().router.View()
		p := c.key.Partition(uint32(ownershipRing.Partitions))
		for id, n := range c.alive {
			switch id {
			case v.Members[v.Ring.Owner(p)].ID:
				c.owner = n
			case v.Members[v.Ring.Standby(p)].ID:
				c.standby = n
			default:
				c.other = n
			}
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // windows begin there
		f(t, c)
		c.calls.Wait()
	})
}

// call asks n, and does not wait.
func (c *strictCluster) call(n *ownershipNode, strict bool) {
	c.calls.Go(func() {
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		g := []shard.Group{{Takes: []shard.Take{{Key: c.key, Limit: c.limit, Cost: 1, Strict: strict, OnFailure: shard.FailClosed}}}}
		n.router.Decide(ctx, g)
		raise(&c.slowest, int64(time.Since(began)))
		switch s := g[0].Takes[0].Source; {
		case s == shard.Undecided || s == shard.Overloaded || s == shard.Redirected || s == shard.Deferred || g[0].Deferred > 0:
			c.undecided.Add(1)
		case g[0].Allowed:
			c.granted.Add(1)
		}
	})
}

// load has so many calls made in every millisecond, by the nodes in turns.
func (c *strictCluster) load(perMS int, d time.Duration, strict bool, nodes ...*ownershipNode) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; i < perMS*int(d/time.Millisecond); {
		<-tick.C
		for range perMS {
			c.call(nodes[i%len(nodes)], strict)
			i++
		}
	}
}

func (n *ownershipNode) strictWaits() (deferred, unacknowledged float64) {
	return testutil.ToFloat64(n.owners.metrics.deferred), testutil.ToFloat64(n.owners.metrics.unacknowledged)
}

// lost returns how much more than the limit is granted in a second in which the owner is killed
// while so many calls arrive in every millisecond.
func lost(t *testing.T, perMS int, at time.Duration, strict bool) (n int64) {
	inStrictCluster(t, func(t *testing.T, c *strictCluster) {
		var killed sync.WaitGroup
		killed.Go(func() {
			time.Sleep(at)
			c.crash(c.owner.id)
		})
		c.load(perMS, time.Duration(1500/perMS)*time.Millisecond, strict, c.standby, c.other)
		killed.Wait()
		c.calls.Wait()
		if u := c.undecided.Load(); u > 0 {
			t.Errorf("killed after %v: %d calls were not decided", at, u)
		}
		n = c.granted.Load() - c.limit.Limit
	})
	return n
}

// However fast the calls come, at most a tenth of the limit is granted twice when the owner is
// killed; but more, where the rule does not ask for that and grants come faster than they are
// replicated.
func TestStrictWhenTheOwnerIsKilled(t *testing.T) {
	const tenth = 100
	r := rand.New(rand.NewPCG(7, 7))
	for _, tc := range []struct {
		perMS, kills int
		shows        bool // that it is more without
	}{{5, 40, false}, {50, 40, false}, {500, 10, true}} {
		switch {
		case testform.RaceEnabled:
			tc.kills = 2
		case !testform.AllTests():
			tc.kills = min(tc.kills, 10)
		}
		most, mostRelaxed := int64(0), int64(0)
		for i := 0; i < tc.kills || tc.shows && mostRelaxed <= tenth && i < 10*tc.kills; i++ {
			at := time.Duration(r.Int64N(int64(time.Duration(1000/tc.perMS) * time.Millisecond)))
			most = max(most, lost(t, tc.perMS, at, true))
			mostRelaxed = max(mostRelaxed, lost(t, tc.perMS, at, false))
		}
		t.Logf("%d,000/s: %d lost, %d without durability: strict", tc.perMS, most, mostRelaxed)
		if most > tenth {
			t.Errorf("%d,000/s: %d are granted twice, more than %d", tc.perMS, most, tenth)
		}
		if tc.shows && mostRelaxed <= tenth {
			t.Errorf("%d,000/s: only %d are granted twice without durability: strict, so this shows nothing", tc.perMS, mostRelaxed)
		}
	}
}

// A whole limit at once waits for one acknowledgement or two, and not for ten.
func TestStrictBurst(t *testing.T) {
	inStrictCluster(t, func(t *testing.T, c *strictCluster) {
		for i := range 1500 {
			c.call([]*ownershipNode{c.owner, c.standby, c.other}[i%3], true)
		}
		c.calls.Wait()
		deferred, unacknowledged := c.owner.strictWaits() // a round may be over before all have come
		if took := time.Duration(c.slowest.Load()); c.granted.Load() != 1000 || deferred == 0 || deferred > 900 || unacknowledged != 0 || took > 3*hurryEvery {
			t.Errorf("%d granted, %v deferred, %v not acknowledged, the slowest after %v", c.granted.Load(), deferred, unacknowledged, took)
		}
		if n := c.owner.denialLeases.strictAcks.counters.Load(); n != 0 {
			t.Errorf("%d counters are still owed", n)
		}
	})
}

// A standby that acknowledges nothing costs a check strictPatience at most, and soon nothing.
func TestStrictWithoutItsStandby(t *testing.T) {
	for name, fail := range map[string]func(c *strictCluster){
		"dead":   func(c *strictCluster) { c.crash(c.standby.id) },
		"silent": func(c *strictCluster) { c.losing.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			inStrictCluster(t, func(t *testing.T, c *strictCluster) {
				fail(c)
				synctest.Wait()
				c.load(5, 100*time.Millisecond, true, c.owner, c.other)
				c.calls.Wait()
				took := time.Duration(c.slowest.Swap(0))
				if n := c.granted.Load(); n != 500 || took < strictPatience || took > strictPatience+hopPause || c.undecided.Load() != 0 {
					t.Errorf("%d of 500 granted, %d undecided, the slowest after %v", n, c.undecided.Load(), took)
				}
				c.load(5, 50*time.Millisecond, true, c.owner, c.other)
				c.calls.Wait()
				if took := time.Duration(c.slowest.Load()); took != 0 {
					t.Errorf("later the slowest took %v", took)
				}
				deferred, unacknowledged := c.owner.strictWaits()
				if deferred == 0 || unacknowledged < 500 {
					t.Errorf("%v deferred, %v not acknowledged", deferred, unacknowledged)
				}
				if name == "silent" {
					c.losing.Store(false)
					time.Sleep(5 * time.Second)
					c.load(500, 2*time.Millisecond, true, c.owner, c.other)
					c.calls.Wait()
					if again, more := c.owner.strictWaits(); again == deferred || more != unacknowledged {
						t.Errorf("when it acknowledges again %v are deferred, %v not acknowledged", again-deferred, more-unacknowledged)
					}
					time.Sleep(2 * feedEvery)
					if n := c.owner.denialLeases.strictAcks.counters.Load(); n != 0 {
						t.Errorf("%d counters are still owed", n)
					}
				}
			})
		})
	}
}

// Where there is no room to count what a standby has yet to acknowledge of a counter, all waits that is
// taken from it.
func TestStrictWithoutRoom(t *testing.T) {
	inStrictCluster(t, func(t *testing.T, c *strictCluster) {
		for _, used := range []int64{maxOwed, -maxOwed} {
			c.owner.denialLeases.strictAcks.counters.Add(used)
			c.slowest.Store(0)
			c.call(c.owner, true)
			c.calls.Wait()
			if took := c.slowest.Load(); (took > 0) != (used > 0) {
				t.Errorf("with %d counters more the call took %v", used, time.Duration(took))
			}
			time.Sleep(2 * feedEvery)
		}
		if _, unacknowledged := c.owner.strictWaits(); unacknowledged != 0 || c.granted.Load() != 2 {
			t.Errorf("%d granted, %v not acknowledged", c.granted.Load(), unacknowledged)
		}
	})
}

// Only the standby acknowledges what it is sent.
func TestStrictIsAcknowledgedByTheStandby(t *testing.T) {
	inStrictCluster(t, func(t *testing.T, c *strictCluster) {
		d, p := c.owner.denialLeases.strictAcks, c.key.Partition(uint32(ownershipRing.Partitions))
		standby := d.standbys[p].Load()
		c.losing.Store(true) // so that the standby itself acknowledges nothing
		c.call(c.owner, true)
		c.calls.Wait()
		n := d.begin(p)
		for _, by := range []*otherMember{{}, standby} {
			d.acknowledged(by, time.Now(), p, n)
			if has := d.parts[p].has(n - 1); has != (by == standby) || (d.counters.Load() == 0) != has {
				t.Errorf("acknowledged by the standby %v: %v, of %d counters something is owed", by == standby, has, d.counters.Load())
			}
		}
	})
}

// What spans nodes is deferred where it must be, and counted once on each.
func TestStrictGroup(t *testing.T) {
	inStrictCluster(t, func(t *testing.T, c *strictCluster) {
		v := c.other.router.View()
		var takes []shard.Take
		for _, n := range []*ownershipNode{c.owner, c.standby, c.other} {
			for i := 1; ; i++ {
				if k := ownershipKey(i); v.Members[v.Ring.Owner(k.Partition(uint32(ownershipRing.Partitions)))].ID == n.id {
					takes = append(takes, shard.Take{Key: k, Limit: c.limit, Cost: 150, Strict: n != c.other})
					break
				}
			}
		}
		for i := range 7 {
			began, g := time.Now(), []shard.Group{{Takes: slices.Clone(takes)}}
			c.other.router.Decide(t.Context(), g)
			want := min(1000, 150*int64(i+1))
			took := time.Since(began)
			if g[0].Allowed != (i < 6) || took > 3*hurryEvery || (took > 0) != (i < 6) {
				t.Errorf("group %d: %+v after %v", i, g[0], took)
			}
			for _, take := range g[0].Takes {
				if take.Source != shard.Owner || take.Decision.Remaining != 1000-min(900, want) {
					t.Errorf("group %d: %+v", i, take)
				}
			}
			time.Sleep(hurryEvery)
		}
		for i, n := range []*ownershipNode{c.owner, c.standby, c.other} {
			if deferred, unacknowledged := n.strictWaits(); unacknowledged != 0 || (deferred > 0) != (i < 2) {
				t.Errorf("%s: %v deferred, %v not acknowledged", n.id, deferred, unacknowledged)
			}
		}
	})
}

// Small limits have a token that need not be acknowledged, and do not wait for each other.
func TestStrictSmallLimit(t *testing.T) {
	inStrictCluster(t, func(t *testing.T, c *strictCluster) {
		c.limit.Limit = 3
		c.call(c.other, true)
		c.calls.Wait()
		if took := c.slowest.Load(); took != 0 {
			t.Errorf("the first took %v", time.Duration(took))
		}
		for range 4 {
			c.call(c.other, true)
		}
		c.calls.Wait()
		if took := time.Duration(c.slowest.Load()); c.granted.Load() != 3 || took == 0 || took > 3*hurryEvery {
			t.Errorf("%d granted, the slowest after %v", c.granted.Load(), took)
		}
	})
}

// Only takes from a strict counter wait, and a node that is alone does not wait.
func TestOnlyStrictTakesWait(t *testing.T) {
	inStrictCluster(t, func(t *testing.T, c *strictCluster) {
		c.limit.Limit = 100
		take := shard.Take{Key: c.key, Limit: c.limit, Cost: 50, Strict: true}
		with := func(f func(t *shard.Take)) []shard.Take {
			one := take
			f(&one)
			return []shard.Take{one}
		}
		for _, n := range []*ownershipNode{c.owner, c.other} {
			for _, tc := range []struct {
				name string
				g    shard.Group
			}{
				{"a look", shard.Group{Takes: []shard.Take{take}, Peek: true}},
				{"a shadow", shard.Group{Takes: with(func(t *shard.Take) { t.Shadow = true })}},
				{"a denial", shard.Group{Takes: with(func(t *shard.Take) { t.Cost = 51 })}},
				{"a refund", shard.Group{Takes: with(func(t *shard.Take) { t.Cost = -5 })}},
				{"a reset", shard.Group{Takes: []shard.Take{take}, Reset: true}},
			} {
				began, one := time.Now(), []shard.Group{tc.g}
				n.router.Decide(t.Context(), one)
				if took := time.Since(began); took != 0 || one[0].Takes[0].Source != shard.Owner {
					t.Errorf("%s took %v: %+v", tc.name, took, one[0])
				}
			}
		}
		for _, strict := range []bool{true, false} {
			g := []shard.Group{{Takes: with(func(t *shard.Take) { t.Cost, t.Strict = 1, strict }), Lend: 4, Tokens: 1}}
			c.owner.router.Decide(t.Context(), g)
			if !g[0].Allowed || strict != (g[0].TokenLease.Tokens == 0) {
				t.Errorf("strict %v: lent %+v", strict, g[0])
			}
		}
		if deferred, _ := c.owner.strictWaits(); deferred != 0 {
			t.Errorf("%v were deferred", deferred)
		}
	})
	inOwners(t, func(t *testing.T, cc *ownershipCluster) {
		cc.start("a")
		cc.settled()
		c := &strictCluster{ownershipCluster: cc, key: ownershipKey(0), limit: strictLimit, owner: cc.alive["a"]}
		c.load(500, 2*time.Millisecond, true, c.owner)
		c.calls.Wait()
		if deferred, unacknowledged := c.owner.strictWaits(); c.granted.Load() != 1000 || c.slowest.Load() != 0 || deferred+unacknowledged != 0 {
			t.Errorf("alone: %d granted, the slowest after %v, %v deferred, %v not acknowledged", c.granted.Load(), time.Duration(c.slowest.Load()), deferred, unacknowledged)
		}
	})
}
