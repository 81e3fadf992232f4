package ownership

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// returning is an owner that has had no decision lease for a while, whose standby has granted meanwhile.
type returning struct {
	*worldNodeRun
	fails atomic.Pointer[func(to view.Life) bool] // whether a call fails at once
	still atomic.Pointer[chan struct{}]           // the node stands still until it is closed; nil if it does not
}

func (x *returning) Hear(ctx context.Context, to view.Life) ([]Post, uint64, error) {
	if fails := x.fails.Load(); fails != nil && (*fails)(to) {
		return nil, 0, errors.New("connection refused")
	}
	return x.worldNodeRun.Hear(ctx, to)
}

// cutOff cuts a node off from others, and from etcd, or mends that.
func (x *returning) cutOff(cut bool, others ...string) {
	for _, id := range append(others, "etcd") {
		x.world.separate(x.Self.ID, id, cut)
	}
}

// await returns how long it takes until the node decides in a partition, and how many tokens a key of that has then.
func (x *returning) await(p uint32, key ring.Key) (took time.Duration, left int64) {
	began := time.Now()
	for n := 0; x.Deciding()[p] == 0; n++ {
		if n == 10_000 {
			x.world.t.Error("after 1 s it does not decide")
			break
		}
		x.world.wait(100 * time.Microsecond)
	}
	return time.Since(began), x.remaining(key)
}

// returningOwner returns the owner a of a world with others, once it does not decide any more, with a key of which b is the standby. It was cut off for so long.
func (w *nodeWorld) returningOwner(cutFor time.Duration, others ...string) (a *returning, b *worldNodeRun, key ring.Key, p uint32) {
	a = &returning{worldNodeRun: w.newNode("a", 1)}
	a.Peers, a.Attest = a, func() {
		if still := a.still.Load(); still != nil {
			<-*still
		}
	}
	w.begin(a.worldNodeRun)
	for _, id := range others {
		if x := w.start(id, 1); id == "b" {
			b = x
		}
	}
	w.awaitSettled()
	for n := 0; ; n++ {
		key = worldKey(n)
		p = key.Partition(uint32(w.params.Partitions))
		if part := w.written().Partitions[p]; part.Owner == a.Self && part.Standby == b.Self {
			break
		}
	}
	w.check(key)
	w.wait(time.Second)
	w.hold(true)
	if cutFor < time.Second { // it stands still
		a.still.Store(new(make(chan struct{})))
	}
	a.cutOff(true, others...)
	w.wait(cutFor)
	return a, b, key, p
}

// The connection of an owner to its standby is still broken when it has a witness again. It asks again before it decides, unless a later life of the standby is there.
func TestResumedOwnersAskAgain(t *testing.T) {
	for name, tc := range map[string]struct{ hasEnded, stoodStill bool }{
		"the standby runs": {}, "the standby has ended": {hasEnded: true}, "the owner has stood still, too": {stoodStill: true},
	} {
		t.Run(name, func(t *testing.T) {
			runWorld(t, 1, func(w *nodeWorld) {
				const granted = 10
				a, b, key, p := w.returningOwner(2*time.Second, "b")
				if tc.stoodStill {
					a.still.Store(new(make(chan struct{})))
					w.wait(300 * time.Millisecond)
					close(*a.still.Load())
				}
				want := a.remaining(key)
				for range granted {
					b.decide(key, true)
				}
				if tc.hasEnded {
					w.kill(b)
					later := w.newNode("b", 2) // of which no view knows yet
					w.mu.Lock()
					w.nodes[later.Self] = later
					w.mu.Unlock()
				} else {
					want -= granted
				}
				var failed atomic.Int64
				healed := time.Now()
				a.fails.Store(new(func(view.Life) bool {
					failed.Add(1)
					return tc.hasEnded || time.Since(healed) < 200*time.Millisecond
				}))
				a.cutOff(false, "b")
				w.doubt("a", "b")
				took, left := a.await(p, key)
				if left != want || failed.Load() == 0 {
					t.Errorf("it begins with %d tokens, want %d; asked %d times", left, want, failed.Load())
				}
				if tc.hasEnded && took > 100*time.Millisecond {
					t.Errorf("it decides %v after it has a witness", took)
				}
			})
		})
	}
}

// A standby has answered an owner that waits for another one, and grants on until the owner decides.
func TestResumedOwnersHearTheLatest(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, b, key, p := w.returningOwner(2*time.Second, "b", "c")
		want := a.remaining(key)
		a.cutOff(false, "b") // and c is silent
		granted := 0
		for n := 0; n < 10 && a.Deciding()[p] == 0; n++ {
			if b.decide(key, true).Allowed {
				granted++
			}
			w.wait(40 * time.Millisecond)
		}
		if _, left := a.await(p, key); left != want-int64(granted) || granted < 5 {
			t.Errorf("it begins with %d tokens, want %d: its standby has granted %d", left, want-int64(granted), granted)
		}
	})
}

// An owner that has stood still does not wait for a standby that was killed meanwhile: its connections to others are as they were. One that is far is asked once.
func TestHaltedOwnersDoNotWait(t *testing.T) {
	for name, way := range map[string]time.Duration{"a dead standby": 0, "far ones": 15 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			runWorld(t, 1, func(w *nodeWorld) {
				w.way = way
				a, _, key, p := w.returningOwner(300*time.Millisecond, "b", "c")
				if way == 0 {
					a.fails.Store(new(func(to view.Life) bool { return to.ID == "c" }))
				}
				a.cutOff(false, "b", "c")
				close(*a.still.Load())
				if took, _ := a.await(p, key); took > 25*time.Millisecond+2*way+5*time.Millisecond { // it reads the view every 25 ms
					t.Errorf("it decides after %v", took)
				}
				if !a.WasHalted() {
					t.Error("it was not halted")
				}
			})
		})
	}
}

// A view that does not name a standby any more ends the wait for it.
func TestResumedOwnersFollowViews(t *testing.T) {
	for name, isSilent := range map[string]bool{"calls fail": false, "calls hang": true} {
		t.Run(name, func(t *testing.T) {
			runWorld(t, 1, func(w *nodeWorld) {
				a, _, key, p := w.returningOwner(2*time.Second, "b", "c")
				if !isSilent {
					a.fails.Store(new(func(to view.Life) bool { return to.ID == "c" }))
				}
				for _, x := range w.living() {
					if x.Self.ID == "c" {
						w.kill(x)
					}
				}
				w.wait(worldEtcdLease)
				a.cutOff(false, "b", "c")
				w.wait(100 * time.Millisecond)
				if a.Deciding()[p] != 0 {
					t.Error("it does not wait")
				}
				w.hold(false)
				if took, _ := a.await(p, key); took > 150*time.Millisecond { // until the view is written, adopted and noticed
					t.Errorf("it decides after %v", took)
				}
			})
		})
	}
}
