package ownership

import (
	"sync"
	"sync/atomic"
	"time"

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
