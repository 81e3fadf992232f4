package ownership

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/shard"
)

// A learner whose copy is complete gets large changes as soon as the standby does: the next view may make it the standby, and the owner may die
// before it is fed again.
func TestLearnerIsFedAtOnce(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		w.start("a", 1)
		w.start("b", 1)
		w.awaitSettled()
		w.start("c", 1)
		compared := 0
		for key := range 2000 {
			k := worldKey(key)
			p := k.Partition(uint32(w.params.Partitions))
			owner, learner := w.complete(int(p))
			if learner == nil {
				w.wait(time.Millisecond)
				continue
			}
			large := []shard.Group{{Takes: []shard.Take{{Key: k, Limit: worldLimit, Cost: worldLimit.Limit / 6}}}}
			if owner.Shard.Decide(large); large[0].Takes[0].Source != shard.Owner {
				continue
			}
			w.wait(10 * time.Millisecond)
			if _, still := w.complete(int(p)); still != learner {
				continue
			}
			compared++
			if has, want := learner.Shard.Count(p), owner.Shard.Count(p); has != want {
				t.Errorf("partition %d: %s has %d counters, %s has %d", p, learner.Self.ID, has, owner.Self.ID, want)
			}
		}
		if compared < 20 {
			t.Errorf("only %d compared", compared)
		}
	})
}

// complete returns the owner of a partition, and its learner if that has a complete copy, else nil.
func (w *nodeWorld) complete(p int) (owner, learner *worldNodeRun) {
	for _, x := range w.living() {
		part := &x.parts[p]
		part.mu.Lock()
		l := part.place.learner
		fed := part.replica.State == replica.Deciding && slices.ContainsFunc(part.out.feeds[:], func(d feed) bool { return d.to == l && d.told > 0 })
		part.mu.Unlock()
		if y := w.reached(x, l); fed && y != nil {
			return x, y
		}
	}
	return nil, nil
}
