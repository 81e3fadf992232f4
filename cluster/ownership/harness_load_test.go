package ownership

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// tally counts what checks of some keys have become.
type tally struct {
	granted, asked [worldKeys]atomic.Int64
	provisional    atomic.Int64
	undecided      atomic.Int64
}

const worldKeys = 40

// load asks for tokens of all keys until stop is closed.
func (w *nodeWorld) load(stop <-chan struct{}) *tally {
	c := new(tally)
	for i := range 4 {
		w.running.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				case <-w.ctx.Done():
					return
				default:
				}
				c.count(n%worldKeys, w.check(worldKey(n%worldKeys)))
				w.wait(10 * time.Millisecond)
			}
		})
	}
	return c
}

func (c *tally) count(key int, o outcome) {
	c.asked[key].Add(1)
	switch {
	case o.source == shard.Undecided:
		c.undecided.Add(1)
	case o.allowed:
		c.granted[key].Add(1)
		if o.source == shard.Provisional {
			c.provisional.Add(1)
		}
	}
}

// finish asks until no key has tokens left, and returns how many were granted beyond the limits, and how many fewer.
func (w *nodeWorld) finish(c *tally) (over, under int64) {
	var all sync.WaitGroup
	for key := range worldKeys {
		all.Go(func() {
			for range worldLimit.Limit + 1 {
				c.count(key, w.check(worldKey(key)))
			}
		})
	}
	all.Wait()
	for key := range worldKeys {
		granted := c.granted[key].Load()
		over += max(0, granted-worldLimit.Limit)
		under += max(0, worldLimit.Limit-granted)
	}
	return over, under
}

// compareCopies fails the test if the standby of a key has another counter than the owner. Nothing is asked meanwhile.
func (w *nodeWorld) compareCopies() {
	w.t.Helper()
	v := w.written()
	compared := 0
	for key := range worldKeys {
		k := worldKey(key)
		part := v.Partitions[k.Partition(uint32(w.params.Partitions))]
		owner, standby := w.life(part.Owner.ID), w.life(part.Standby.ID)
		if owner == nil || standby == nil {
			continue
		}
		compared++
		if has, want := standby.remaining(k), owner.remaining(k); has != want {
			w.t.Errorf("key %d: %d tokens are left at %s, and %d at the standby %s\n%s", key, want, owner.Self.ID, has, standby.Self.ID, w.describe())
		}
	}
	if len(w.living()) > 1 && compared == 0 {
		w.t.Error("nothing was compared")
	}
}

// remaining returns how many tokens of a key are left by the counter that a node has, owner or not.
func (x *worldNodeRun) remaining(key ring.Key) int64 {
	g := []shard.Group{{Peek: true, Ungated: true, Takes: []shard.Take{{Key: key, Limit: worldLimit, Cost: 1}}}}
	x.Shard.Decide(g)
	return g[0].Takes[0].Decision.Remaining
}
