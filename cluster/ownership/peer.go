package ownership

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/cluster/view"
)

// peerTable has a peer for each other life that the newest view names.
type peerTable struct {
	byLife  atomic.Pointer[map[view.Life]*peer] // replaced by meet
	running sync.WaitGroup                      // the goroutines of all, and others of the node
	ctx     context.Context                     // ends with Node.Run; nil before it; guarded by decisionLease.mu
}

// peer is another node, as its driver sees it. It has a sender while the driver runs.
type peer struct {
	life       view.Life
	stop       context.CancelFunc // nil before it runs
	due        chan struct{}      // full when it is time to look for changes; has room for one
	soon       chan struct{}      // full when something should be sent at once; has room for one
	wasReached atomic.Bool        // it was reached once, when it mattered whether it is

	mu    sync.Mutex
	fed   []uint32      // the partitions of which it is fed something, in ascending order; guarded by mu
	final chan struct{} // closed once a final state is due; renewed by pack; guarded by mu
}

// lifeOr returns the life of a peer, the zero value of none.
func (c *peer) lifeOr() view.Life {
	if c == nil {
		return view.Life{}
	}
	return c.life
}

func (c *peer) leave() {
	if c.stop != nil {
		c.stop()
	}
}

// peer returns the peer of a life, nil if the view does not name it, and for the zero value.
func (t *peerTable) peer(l view.Life) *peer {
	if l == (view.Life{}) { // as most partitions have it, of which others are the owner
		return nil
	}
	return (*t.byLife.Load())[l]
}

// remind has all peers served. It is called every feedEvery, when the node is awake anyway.
func (t *peerTable) remind() {
	for _, c := range *t.byLife.Load() {
		fill(c.due)
	}
}

// partitions returns what a peer is fed, in ascending order.
func (c *peer) partitions() []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.fed)
}

// noteFinal notes that a final state is due, which is urgent.
func (c *peer) noteFinal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !isClosed(c.final) {
		close(c.final)
	}
}

// finalDue returns what is closed once a final state is due.
func (c *peer) finalDue() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.final
}

// renewFinal forgets which final states are due, and reports whether one was.
func (c *peer) renewFinal() (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if was = isClosed(c.final); was {
		c.final = make(chan struct{})
	}
	return was
}

// setFed records whether a peer is fed a partition.
func (c *peer) setFed(p uint32, fed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch i, was := slices.BinarySearch(c.fed, p); {
	case fed && !was:
		c.fed = slices.Insert(c.fed, i, p)
	case !fed && was:
		c.fed = slices.Delete(c.fed, i, i+1)
	}
}
