package ownership

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// One partition has long counters that change all the time, so that no message has the rest of it. All other copies are complete soon all the same.
func TestACopyThatIsNeverCompleteDelaysNoOther(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a := w.start("a", 1)
		w.awaitSettled()
		for key := range 2000 {
			w.check(worldKey(key))
		}
		log := algorithms.Limit{Algorithm: algorithms.SlidingWindowLog, Limit: 4000, Window: int64(24 * time.Hour)}
		change := func(key ring.Key, cost int64) {
			a.Shard.Decide([]shard.Group{{Ungated: true, Takes: []shard.Take{{Key: key, Limit: log, Cost: cost}}}})
		}
		random := rand.New(rand.NewPCG(1, 1))
		var keys []ring.Key
		for len(keys) < 4 {
			if k := (ring.Key{Hi: random.Uint64(), Lo: random.Uint64()}); k.Partition(uint32(w.params.Partitions)) == 0 {
				keys = append(keys, k)
			}
		}
		for n := range 3000 * len(keys) {
			change(keys[n%len(keys)], 1)
			w.wait(17 * time.Microsecond)
		}
		stop := make(chan struct{})
		w.running.Go(func() {
			for n := 0; w.ctx.Err() == nil; n++ {
				select {
				case <-stop:
					return
				default:
				}
				for _, k := range keys {
					change(k, int64(1-2*(n%2)))
				}
				w.wait(500 * time.Microsecond)
			}
		})
		w.start("b", 1)
		w.wait(3 * time.Second)
		for x := range a.parts.each {
			if d := &x.out.feeds[0]; x.p > 0 && x.replica.State == replica.Deciding && d.version == (replica.Version{}) {
				t.Errorf("the copy of partition %d is not complete after %d messages", x.p, d.index)
			}
		}
		close(stop)
	})
}

// Copies are sent at a pace that leaves nodes time for checks. While a call is on its way, no node works: copies do not rest for that, and are sent in
// larger pieces.
func TestCopiesDoNotRestForASlowLink(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		w.way = 10 * time.Millisecond
		a := w.start("a", 1)
		w.awaitSettled()
		for n := range 200_000 {
			a.decide(worldKey(n), false)
		}
		w.start("b", 1)
		for w.bytesFed("a") == 0 {
			w.wait(time.Millisecond)
		}
		began := time.Now()
		for a.copiesUnderWay() > 0 {
			w.wait(time.Millisecond)
		}
		took, calls := time.Since(began), w.bytesFed("a")/messageBytes
		if each := took / time.Duration(max(calls, 1)); calls < 40 || each > 2*w.way+8*time.Millisecond {
			t.Errorf("%d calls of %d bytes have taken %v each, with %v one way", calls, messageBytes, each, w.way)
		}
	})
}

// copiesUnderWay returns how many copies of other nodes are not complete.
func (x *worldNodeRun) copiesUnderWay() (n int) {
	for part := range x.parts.each {
		for f := range part.out.feeds {
			if d := &part.out.feeds[f]; d.to != (view.Life{}) && d.isCopy() {
				n++
			}
		}
	}
	return n
}
