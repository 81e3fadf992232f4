package ownership

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/internal/testform"
)

// Nodes join, leave, die, come back, and are separated from each other and from etcd, at random. At no moment two nodes decide in one
// partition. Once all is calm the partitions are where the plan wants them, and all deltas have arrived. SEEDS plays more worlds.
func TestRandomWorlds(t *testing.T) {
	seeds := 5
	if testform.AllTests() {
		seeds = 20
	}
	if n, err := strconv.Atoi(os.Getenv("SEEDS")); err == nil {
		seeds = n
	}
	first, _ := strconv.Atoi(os.Getenv("FIRST"))
	for seed := uint64(first); seed < uint64(first+seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			runWorld(t, seed, func(w *nodeWorld) { playRandom(w, rand.New(rand.NewPCG(seed, 2))) })
		})
	}
}

func playRandom(w *nodeWorld, random *rand.Rand) {
	ids := []string{"a", "b", "c", "d", "e"}
	incarnations := make(map[string]uint64)
	begin := func(id string) {
		incarnations[id]++
		w.start(id, incarnations[id])
	}
	for _, id := range ids[:3] {
		begin(id)
	}
	w.awaitSettled()
	w.lose(random.Float64() * 0.05)
	stop := make(chan struct{})
	c := w.load(stop)
	w.running.Go(func() { w.watchDeciders(stop) })
	for range 12 {
		w.wait(time.Duration(random.IntN(2000)) * time.Millisecond)
		id, other := ids[random.IntN(len(ids))], append(ids, "etcd")[random.IntN(len(ids)+1)]
		x := w.life(id)
		switch what := random.IntN(6); {
		case x == nil:
			begin(id)
		case what == 0 && w.staying() > 1:
			w.note("%s dies", id)
			w.kill(x)
		case what == 1 && w.staying() > 2 && w.wish(x) == view.Ready:
			w.note("%s leaves", id)
			w.running.Go(func() {
				w.leaveWithin(x, 4*time.Second)
				w.kill(x)
			})
		case what < 5 && id != other:
			w.note("%s and %s are separated", id, other)
			w.separate(id, other, true)
			w.running.Go(func() {
				w.wait(time.Duration(w.chance() * float64(4*time.Second)))
				w.separate(id, other, false)
			})
		}
	}
	w.wait(5 * time.Second)
	w.lose(0)
	w.awaitSettled()
	close(stop)
	w.wait(2 * time.Second)
	for _, x := range w.living() {
		if n := x.batches.Load(); n != 0 || x.Shard.HasAnyGrants() {
			w.t.Errorf("%v has %d deltas\n%s", x.Self, n, w.describe())
		}
	}
	w.compareCopies()
	over, under := w.finish(c)
	w.t.Logf("%d views, %d provisional, %d undecided, %d tokens over, %d under, %+v", w.views, c.provisional.Load(), c.undecided.Load(), over, under, w.finals)
}

// staying returns how many nodes run that do not leave.
func (w *nodeWorld) staying() (n int) {
	for _, x := range w.living() {
		if w.wish(x) == view.Ready {
			n++
		}
	}
	return n
}

// life returns the life of a node that runs, nil if none does.
func (w *nodeWorld) life(id string) *worldNodeRun {
	for _, x := range w.living() {
		if x.Self.ID == id {
			return x
		}
	}
	return nil
}

// note records what happens, to be told if the test fails.
func (w *nodeWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, fmt.Sprintf("%v ", time.Since(w.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// watchDeciders fails the test if two nodes decide in one partition at a moment.
func (w *nodeWorld) watchDeciders(stop <-chan struct{}) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-w.ctx.Done():
			return
		case <-tick.C:
		}
		deciding := make(map[int]view.Life)
		for _, x := range w.living() {
			for p, term := range x.Deciding() {
				if other, found := deciding[p]; term > 0 && found {
					w.note("partition %d: %v and %v decide", p, other, x.Self)
					w.t.Errorf("partition %d: %v and %v decide", p, other, x.Self)
					return
				}
				if term > 0 {
					deciding[p] = x.Self
				}
			}
		}
	}
}
