package cluster

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

func denied(k ring.Key) *shard.Take {
	t := take(k, 10, 1)
	now := time.Now().UnixNano()
	t.Decision = algorithms.Decision{At: now, RetryAt: now + int64(time.Hour)}
	return &t
}

// A denial lease and a take that frees come in any
// order: either the lease is not given, or the take waits.
func TestDenialLeaseAndFreeingRace(t *testing.T) {
	takes := []shard.Take{*denied(ring.Key{})}
	type run struct {
		p      *GivenDenialLeases
		ticket uint32
		quiet  bool
		leased bool
		wait   time.Duration
	}
	look := func(r *run) { r.ticket, r.quiet = r.p.quiet(ring.Key{}) }
	lease := func(r *run) { r.leased = r.quiet && r.p.lease(&takes[0], r.ticket) }
	begin := func(r *run) { r.wait = r.p.begin(takes) }
	end := func(r *run) {
		if r.wait == 0 {
			r.p.end(takes)
		}
	}
	for name, tc := range map[string]struct {
		order  []func(*run)
		leased bool
	}{
		"leased, then freed":         {[]func(*run){look, lease, begin, end}, true},
		"freed, then leased":         {[]func(*run){begin, end, look, lease}, true}, // the decision has seen it
		"freed in between":           {[]func(*run){look, begin, end, lease}, false},
		"begun in between":           {[]func(*run){look, begin, lease, end}, false},
		"begun before, ended after":  {[]func(*run){begin, look, lease, end}, false},
		"begun before, ended within": {[]func(*run){begin, look, end, lease}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &run{p: NewGivenDenialLeases(true, true)}
			for _, step := range tc.order {
				step(r)
			}
			if r.leased != tc.leased {
				t.Errorf("%s: leased %v", name, r.leased)
			}
			if waits := name == "leased, then freed"; waits != (r.wait == maxDenialLease) {
				t.Errorf("%s: waits %v", name, r.wait)
			}
		})
	}
}

// A caller waits once: no denial lease is given until it has come back, or should have.
func TestNoDenialLeaseWhileAReturnWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, one := NewGivenDenialLeases(true, true), denied(ring.Key{})
		leased := func() bool {
			ticket, quiet := p.quiet(one.Key)
			return quiet && p.lease(one, ticket)
		}
		if !leased() {
			t.Fatal("not leased")
		}
		wait := p.begin([]shard.Take{*one})
		if wait != maxDenialLease || leased() {
			t.Errorf("leased, although a caller waits for %v", wait)
		}
		time.Sleep(wait)
		if leased() {
			t.Error("leased before the caller has come back")
		}
		if wait := p.begin([]shard.Take{*one}); wait != 0 {
			t.Errorf("the caller waits again, for %v", wait)
		}
		p.end([]shard.Take{*one})
		time.Sleep(freeingGrace + time.Nanosecond)
		if !leased() {
			t.Error("no denial is leased ever again")
		}
	})
}

func TestWhichDenialsAreLeased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tc := range map[string]struct {
			off   bool
			spoil func(t *shard.Take)
			want  bool
		}{
			"a denial":      {false, func(*shard.Take) {}, true},
			"switched off":  {true, func(*shard.Take) {}, false},
			"no denial":     {false, func(t *shard.Take) { t.Decision.Allowed = true }, false},
			"a higher cost": {false, func(t *shard.Take) { t.Cost = 2 }, false},
			"a block":       {false, func(t *shard.Take) { t.Decision.RetryAt = algorithms.Never }, false},
		} {
			p, one := NewGivenDenialLeases(!tc.off, true), denied(ring.Key{})
			tc.spoil(one)
			if got := p.lease(one, 0); got != tc.want || p.begin([]shard.Take{*one}) > 0 != tc.want {
				t.Errorf("%s: leased %v", name, got)
			}
		}
	})
}

func TestHowLongADenialIsRemembered(t *testing.T) {
	for _, tc := range []struct{ retry, want time.Duration }{
		{time.Hour, maxDenialLease - maxDenialLease/1024},
		{1024 * time.Microsecond, 1023 * time.Microsecond},
	} {
		d := algorithms.Decision{At: 1000, RetryAt: 1000 + int64(tc.retry)}
		if got := time.Duration(remembered(&d)); got-tc.want > time.Nanosecond || tc.want-got > time.Nanosecond {
			t.Errorf("%v until it changes: remembered for %v, want %v", tc.retry, got, tc.want)
		}
	}
}

// A denial lease holds, however many leases and freeing takes come
// at once. There is room while a take has freed it.
func TestDenialLeasesAreKept(t *testing.T) {
	p, one := NewGivenDenialLeases(true, true), denied(ring.Key{})
	takes := []shard.Take{*one}
	var room, stop atomic.Bool
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop.Store(true)
	wg.Go(func() {
		for !stop.Load() {
			if p.begin(takes) == 0 {
				room.Store(true)
				runtime.Gosched()
				room.Store(false)
				p.end(takes)
			}
			p.slot(one.Key).waited.Store(0) // as if the grace were over
			runtime.Gosched()
		}
	})
	for range 100_000 {
		ticket, quiet := p.quiet(one.Key)
		told := time.Now()
		if !quiet || room.Load() || !p.lease(one, ticket) {
			continue
		}
		for range 20 {
			if room.Load() && time.Since(told) < maxDenialLease {
				t.Fatal("there is room during a denial lease")
			}
			runtime.Gosched()
		}
		p.slot(one.Key).told.Store(0) // no node remembers it any more
	}
}

// returns counts what is given back.
type returns struct {
	countingLocal
	takes atomic.Int64
}

func (r *returns) Return(takes []shard.Take) { r.takes.Add(int64(len(takes))) }

func TestGiveBacksThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, one, local := NewGivenDenialLeases(true, true), denied(ring.Key{}), &returns{}
		p.lease(one, 0)
		for range maxPutOff + 3 {
			p.giveBack(local, []shard.Take{*one})
		}
		if n := local.takes.Load(); n != 3 {
			t.Errorf("%d were given back at once, want 3", n)
		}
		time.Sleep(maxDenialLease)
		synctest.Wait()
		if n := local.takes.Load(); n != maxPutOff+3 || p.putOff.Load() != 0 {
			t.Errorf("%d were given back in the end, %d wait", n, p.putOff.Load())
		}
	})
}

// A node that has just got a partition waits for denial leases which the owner before it may have given.
func TestFreeingWaitsAfterHandover(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		owner := c.nodes[2]
		opened, other := c.ownedBy(owner, 0), c.ownedBy(owner, 1)
		owner.denialLeases.Opened(c.partition(opened), c.view.Ring.Partitions())
		for _, tc := range []struct {
			key  ring.Key
			want time.Duration
		}{{other, 0}, {opened, maxDenialLease}, {opened, 0}} {
			for _, n := range []*testNode{owner, c.nodes[0]} {
				groups := []shard.Group{{Takes: []shard.Take{take(tc.key, 10, -1)}}}
				start := time.Now()
				n.router.Decide(t.Context(), groups)
				if took := time.Since(start); took != tc.want || groups[0].Takes[0].Source != shard.Owner {
					t.Errorf("%s: %+v after %v, want %v", n.id, groups[0], took, tc.want)
				}
				tc.want = 0
			}
		}
		owner.denialLeases.Opened(c.partition(opened), c.view.Ring.Partitions())
		if g, took := owner.ask(t.Context(), take(opened, 10, 1)); took != 0 || !g.Allowed {
			t.Errorf("what frees nothing: %+v after %v", g, took)
		}
	})
}
