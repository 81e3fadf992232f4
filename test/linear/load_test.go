package linear

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// The load: all clients ask at the same instants, and mostly for the same few keys, so that their checks meet.
const (
	clients     = 12
	tick        = 10 * time.Millisecond
	patience    = 10 * time.Second // of a client, for one answer
	perKind     = 2                // keys of a kind that are asked for at one time
	perKey      = 140              // checks of a key: it is used up after about half of them
	inFocus     = 3                // keys that most checks of a time are about
	focusFor    = 3 * tick
	mostInBatch = 5
)

// decider is what clients ask: a node, or a limiter in this process.
type decider interface {
	Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error)
	CheckBatch(ctx context.Context, reqs []*weirv1.RateLimitRequest) ([]*weirv1.RateLimitResponse, error)
}

// load is clients that ask deciders at random.
type load struct {
	*record
	refunds bool          // whether tokens are given back, too
	moving  bool          // whether partitions may move
	stop    func()        // ends it, and returns once all answers are recorded
	every   time.Duration // how often each client asks, 0 for without a pause
	bursts  bool          // whether clients ask in bursts only

	mutex    sync.Mutex
	deciders []decider  // guarded by mutex
	active   []*history // guarded by mutex
}

// newLoad returns a load of kinds that is not started yet. The names of its keys begin with its own.
func newLoad(name string, all []*kind, deciders ...decider) *load {
	l := &load{record: newRecord(name), refunds: true, every: tick, deciders: deciders}
	for range perKind {
		for _, k := range all {
			l.active = append(l.active, l.add(k))
		}
	}
	return l
}

// start has the clients ask until the load is stopped.
func (l *load) start(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() { l.run(ctx, i) })
	}
	l.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(l.stop)
}

func (l *load) run(ctx context.Context, client int) {
	r := rand.New(rand.NewPCG(1, uint64(client)))
	for ctx.Err() == nil {
		if l.every > 0 {
			wait(l.every - l.now()%l.every)
		}
		if l.bursts {
			awaitBurst()
		}
		d, batch := l.pick(r, client)
		l.ask(d, batch)
	}
}

// awaitBurst waits unless there is a burst now.
func awaitBurst() {
	switch since := sinceBurst(time.Now().UnixNano()); {
	case since < burstBegins:
		wait(burstBegins - since)
	case since > burstEnds:
		wait(burstEvery + burstBegins - since)
	}
}

// sinceBurst returns the time from which a burst is counted to an instant in Unix nanoseconds.
func sinceBurst(at int64) time.Duration { return time.Duration(at % int64(burstEvery)) }

// pick draws what a client asks next, and which decider.
func (l *load) pick(r *rand.Rand, client int) (d decider, batch []asked) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	n := 1
	if r.IntN(3) == 0 {
		n = 2 + r.IntN(mostInBatch-1)
	}
	focus := inFocus * int(l.now()/focusFor)
	for range n {
		i := r.IntN(len(l.active))
		if r.IntN(4) > 0 {
			i = (focus + r.IntN(inFocus)) % len(l.active)
		}
		h := l.active[i]
		if h.left--; h.left == 0 {
			l.active[i] = l.add(h.kind)
		}
		batch = append(batch, asked{of: h, check: h.kind.draw(r, l.refunds), client: client})
	}
	return l.deciders[r.IntN(len(l.deciders))], batch
}

// draw returns a check at random: of few tokens mostly. Some only look, and some give back unless remaining tokens are not
// held to: without them the search for an order of takes and returns takes too long.
func (k *kind) draw(r *rand.Rand, refunds bool) (c check) {
	c.counters, c.cost = k.counters(r), 1
	switch n := r.IntN(20); {
	case n < 3:
		c.cost = 2 + r.Int64N(2)
	case n == 3:
		c.cost = 10
	case n == 4 && k.spare == 0: // else the owner counts what nodes hold as left, used or not
		c.cost, c.peek = 1+r.Int64N(5), true
	case n == 5 && refunds && k.spare == 0 && !k.shared:
		c.cost = -1 - r.Int64N(3)
	}
	return c
}

// counters draws the counters of a check.
func (k *kind) counters(r *rand.Rand) []int {
	switch {
	case !k.shared && len(k.limits) == 1:
		return []int{0}
	case !k.shared:
		return []int{0, 1}
	case r.IntN(4) == 0:
		return []int{0}
	}
	return []int{0, 1 + r.IntN(len(k.limits)-1)}
}

// ask asks a decider, and records the answers.
func (l *load) ask(d decider, batch []asked) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reqs := make([]*weirv1.RateLimitRequest, len(batch))
	for i, a := range batch {
		reqs[i] = a.of.request(a.check)
	}
	answers, err := make([]*weirv1.RateLimitResponse, len(batch)), error(nil)
	call := l.now()
	if len(batch) == 1 {
		answers[0], err = d.Check(ctx, reqs[0])
	} else if all, failed := d.CheckBatch(ctx, reqs); failed != nil {
		err = failed
	} else {
		answers = all
	}
	returned := l.now()
	for i, a := range batch {
		a.call, a.returned = call, returned
		l.answered(a, answers[i], err, l.moving)
	}
}

// with has one more decider asked.
func (l *load) with(d decider) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.deciders = append(slices.Clone(l.deciders), d)
}

// without has a decider not be asked any more.
func (l *load) without(d decider) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.deciders = slices.DeleteFunc(slices.Clone(l.deciders), func(o decider) bool { return o == d })
}

// finish stops the load. Then one client asks for the keys in use, one check after the other: it gives some tokens back, takes two,
// and asks for one more than there are.
func (l *load) finish() {
	l.stop()
	for i, h := range l.active {
		d, all := l.deciders[i%len(l.deciders)], []int{0}
		if len(h.kind.limits) > 1 {
			all = append(all, 1)
		}
		for _, cost := range []int64{-5, 1, 1} {
			l.ask(d, []asked{{of: h, check: check{counters: all, cost: cost}}})
		}
		l.ask(d, []asked{{of: h, check: check{counters: all, cost: h.rest(all) + 1}}})
	}
}

// rest returns what is left for a check after the last answer, or more if that does not say.
func (h *history) rest(counters []int) int64 {
	last := h.ops[len(h.ops)-1].Output.(answer)
	rest := int64(math.MaxInt32)
	for _, i := range counters {
		left := last.remaining[i]
		if left == notHeld {
			left = h.kind.limits[i].Capacity() - 1
		}
		rest = min(rest, left)
	}
	return rest + h.kind.owed()
}
