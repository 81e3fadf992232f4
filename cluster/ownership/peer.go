package ownership

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// Times of what is sent to another node.
const (
	feedEvery   = 100 * time.Millisecond // how often changes are looked for
	hurryEvery  = 2 * time.Millisecond   // the least pause between feeds
	callTimeout = 500 * time.Millisecond // of one call
)

// peerTable has a peer for each other life that the newest view names.
type peerTable struct {
	byLife  atomic.Pointer[map[view.Life]*peer] // replaced by meet
	running sync.WaitGroup                      // the goroutines of all, and others of the node
	ctx     context.Context                     // ends with Node.Run; nil before it; guarded by decisionLease.mu
}

// peer is another node, as its driver sees it: one goroutine sends it changes, deltas and requests in turn.
type peer struct {
	node       *Node // whose peer it is
	life       view.Life
	stop       context.CancelFunc // nil before it runs
	due        chan struct{}      // full when it is time to look for changes; has room for one
	soon       chan struct{}      // full when something should be sent at once; has room for one
	wasReached atomic.Bool        // it was reached once, when it mattered whether it is

	// Owned by serve.
	turn   uint32 // the partition with which pack begins
	copies copyPace
	way    time.Duration // the least that a call has taken, 0 before the first one: about that of the way there and back
	worked time.Duration // for the last call, by nodes
	retry  bool          // a message is to be sent again soon
	buf    []byte        // for the records of one message
	ends   bool          // some of what pack has looked at ends with a final state

	mu    sync.Mutex
	fed   []uint32      // the partitions of which it is fed something, in ascending order; guarded by mu
	final chan struct{} // closed once a final state is due; renewed by pack; guarded by mu
}

// meet keeps a peer for each other life that a view names. n.mu is held.
func (n *Node) meet(v *view.View) {
	if n.ctx != nil && n.ctx.Err() != nil {
		return
	}
	old, all := *n.byLife.Load(), make(map[view.Life]*peer, len(v.Members))
	for _, m := range v.Members {
		if m.Life == n.lease.Self {
			continue
		}
		c := old[m.Life]
		if c == nil {
			c = &peer{node: n, life: m.Life, due: make(chan struct{}, 1), soon: make(chan struct{}, 1), final: make(chan struct{})}
		}
		all[m.Life] = c
		n.attend(c)
	}
	n.byLife.Store(&all)
	for l, c := range old {
		if all[l] == nil {
			c.leave()
		}
	}
}

// attend starts the goroutine of a peer, once the node runs. decisionLease.mu is held.
func (t *peerTable) attend(c *peer) {
	if t.ctx == nil || c.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(t.ctx)
	c.stop = stop
	t.running.Go(func() { c.serve(ctx) })
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

// serve sends a peer what is due, until ctx ends.
func (c *peer) serve(ctx context.Context) {
	c.copies.due = time.NewTimer(feedEvery)
	defer c.copies.due.Stop()
	for {
		copies := false
		select {
		case <-ctx.Done():
			return
		case <-c.due:
			c.post(ctx)
			c.ask(ctx)
			c.askVersions(ctx)
		case <-c.soon:
		case <-c.copies.due.C:
			copies = true
		}
		c.pause(ctx, c.feed(ctx, copies))
	}
}

// remind has all peers served. It is called every feedEvery, when the node is awake anyway.
func (t *peerTable) remind() {
	for _, c := range *t.byLife.Load() {
		fill(c.due)
	}
}

func fill(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
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

// pause waits, until ctx ends or a final state is due that was not before.
func (c *peer) pause(ctx context.Context, wait time.Duration) {
	var final <-chan struct{}
	if !c.ends {
		final = c.finalDue()
	}
	pause(ctx, wait, final)
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

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
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
