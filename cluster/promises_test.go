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

// Whatever the order in which who promises and who frees come: either the denial is not
// promised, or the other waits.
func TestPromiseAndFreeingMeet(t *testing.T) {
	takes := []shard.Take{*denied(ring.Key{})}
	type run struct {
		p        *Promises
		ticket   uint32
		quiet    bool
		promised bool
		wait     time.Duration
	}
	look := func(r *run) { r.ticket, r.quiet = r.p.quiet(ring.Key{}) }
	promise := func(r *run) { r.promised = r.quiet && r.p.promise(&takes[0], r.ticket) }
	begin := func(r *run) { r.wait = r.p.begin(takes) }
	end := func(r *run) {
		if r.wait == 0 {
			r.p.end(takes)
		}
	}
	for name, tc := range map[string]struct {
		order    []func(*run)
		promised bool
	}{
		"promised, then freed":       {[]func(*run){look, promise, begin, end}, true},
		"freed, then promised":       {[]func(*run){begin, end, look, promise}, true}, // the decision has seen it
		"freed in between":           {[]func(*run){look, begin, end, promise}, false},
		"begun in between":           {[]func(*run){look, begin, promise, end}, false},
		"begun before, ended after":  {[]func(*run){begin, look, promise, end}, false},
		"begun before, ended within": {[]func(*run){begin, look, end, promise}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &run{p: NewPromises(true, true)}
			for _, step := range tc.order {
				step(r)
			}
			if r.promised != tc.promised {
				t.Errorf("%s: promised %v", name, r.promised)
			}
			if waits := name == "promised, then freed"; waits != (r.wait == maxPromise) {
				t.Errorf("%s: waits %v", name, r.wait)
			}
		})
	}
}

// Who waits does so once: nothing new is promised until he has come back, or should have.
func TestNothingIsPromisedWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, one := NewPromises(true, true), denied(ring.Key{})
		promised := func() bool {
			ticket, quiet := p.quiet(one.Key)
			return quiet && p.promise(one, ticket)
		}
		if !promised() {
			t.Fatal("not promised")
		}
		wait := p.begin([]shard.Take{*one})
		if wait != maxPromise || promised() {
			t.Errorf("promised, although somebody waits for %v", wait)
		}
		time.Sleep(wait)
		if promised() {
			t.Error("promised before he has come back")
		}
		if wait := p.begin([]shard.Take{*one}); wait != 0 {
			t.Errorf("he waits again, for %v", wait)
		}
		p.end([]shard.Take{*one})
		time.Sleep(freeingGrace + time.Nanosecond)
		if !promised() {
			t.Error("nothing is promised ever again")
		}
	})
}

func TestWhatIsPromised(t *testing.T) {
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
			p, one := NewPromises(!tc.off, true), denied(ring.Key{})
			tc.spoil(one)
			if got := p.promise(one, 0); got != tc.want || p.begin([]shard.Take{*one}) > 0 != tc.want {
				t.Errorf("%s: promised %v", name, got)
			}
		}
	})
}

func TestHowLongADenialIsRemembered(t *testing.T) {
	for _, tc := range []struct{ retry, want time.Duration }{
		{time.Hour, maxPromise - maxPromise/1024},
		{1024 * time.Microsecond, 1023 * time.Microsecond},
	} {
		d := algorithms.Decision{At: 1000, RetryAt: 1000 + int64(tc.retry)}
		if got := time.Duration(remembered(&d)); got-tc.want > time.Nanosecond || tc.want-got > time.Nanosecond {
			t.Errorf("%v until it changes: remembered for %v, want %v", tc.retry, got, tc.want)
		}
	}
}

// A promise that was made is not broken, however many promise and free at once. Room is
// there while somebody has freed it.
func TestPromisesAreKept(t *testing.T) {
	p, one := NewPromises(true, true), denied(ring.Key{})
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
		if !quiet || room.Load() || !p.promise(one, ticket) {
			continue
		}
		for range 20 {
			if room.Load() && time.Since(told) < maxPromise {
				t.Fatal("there is room, although it was promised that there is none")
			}
			runtime.Gosched()
		}
		p.slot(one.Key).told.Store(0) // nobody remembers it any more
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
		p, one, local := NewPromises(true, true), denied(ring.Key{}), &returns{}
		p.promise(one, 0)
		for range maxPutOff + 3 {
			p.giveBack(local, []shard.Take{*one})
		}
		if n := local.takes.Load(); n != 3 {
			t.Errorf("%d were given back at once, want 3", n)
		}
		time.Sleep(maxPromise)
		synctest.Wait()
		if n := local.takes.Load(); n != maxPutOff+3 || p.putOff.Load() != 0 {
			t.Errorf("%d were given back in the end, %d wait", n, p.putOff.Load())
		}
	})
}

// What another node may have promised about a partition is waited for by who has just got it.
func TestNothingIsFreedRightAfterOpening(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		owner := c.nodes[2]
		opened, other := c.ownedBy(owner, 0), c.ownedBy(owner, 1)
		owner.promises.Opened(c.partition(opened), c.view.Ring.Partitions())
		for _, tc := range []struct {
			key  ring.Key
			want time.Duration
		}{{other, 0}, {opened, maxPromise}, {opened, 0}} {
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
		owner.promises.Opened(c.partition(opened), c.view.Ring.Partitions())
		if g, took := owner.ask(t.Context(), take(opened, 10, 1)); took != 0 || !g.Allowed {
			t.Errorf("what frees nothing: %+v after %v", g, took)
		}
	})
}
