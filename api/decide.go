package api

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Decider answers groups wherever their counters live. *cluster.Router is one.
type Decider interface {
	Decide(ctx context.Context, groups []shard.Group)
	// Owner returns the id of the node that owns a counter, "" if nobody knows.
	Owner(key ring.Key) string
}

// Limiter decides requests. It is safe for concurrent use; make it with
// NewLimiter.
type Limiter struct {
	rules   func() *rules.Set
	hasher  ring.Hasher
	decider Decider
	metrics *metrics
	tallies *tallies
	works   sync.Pool // of *work
	style   headers.Style
	auth    AuthConfig

	envoyConfig Envoy
	envoyStats  *envoyStats

	stop    context.CancelFunc
	stopped context.Context // ends with Stop; streams of checks end with it
}

// NewLimiter returns a Limiter of whatever rules returns at the time.
func NewLimiter(c Config) *Limiter {
	stopped, stop := context.WithCancel(context.Background())
	return &Limiter{
		rules:   c.Rules,
		hasher:  c.Hasher,
		decider: c.Decider,
		metrics: newMetrics(c.Metrics),
		tallies: newTallies(c.Metrics, c.Rules),

		envoyConfig: c.Envoy,
		envoyStats:  newEnvoyStats(c.Metrics, c.Envoy.NearLimit),

		works:   sync.Pool{New: func() any { return new(work) }},
		style:   c.Style,
		auth:    c.Auth,
		stop:    stop,
		stopped: stopped,
	}
}

// Stop ends all streams of checks, which would hold up a server that waits for its
// calls. Messages that are being decided are answered.
func (l *Limiter) Stop() { l.stop() }

// work holds what it takes to decide some requests; it is used again for others.
type work struct {
	set     *rules.Set // what the matches belong to
	request rules.Request
	matches []rules.Match
	takes   []shard.Take // one per match
	items   []item
	groups  []shard.Group
	ends    []int // of each group's takes

	list    list                    // what is still to be decoded
	entries list                    // likewise, of a descriptor
	decoded weirv1.RateLimitRequest // one after the other
	reply   answer                  // likewise
	out     []byte

	envoy envoyWork
}

// item is one thing that was asked for: a request, or a descriptor of one.
type item struct {
	end    int         // of its matches and takes
	exempt *rules.Rule // the rule that exempts it from all limits, or nil
}

func (l *Limiter) newWork() *work {
	w := l.works.Get().(*work)
	w.set = l.rules()
	w.request = rules.Request{Attributes: w.request.Attributes[:0]}
	w.matches = w.matches[:0]
	w.takes = w.takes[:0]
	w.items = w.items[:0]
	w.groups = w.groups[:0]
	w.ends = w.ends[:0]
	w.list.reset()
	return w
}

// match appends an item: a take for every limit that applies to w.request. The
// error says which attribute is no cost.
func (l *Limiter) match(w *work, tokens int64) error {
	first := len(w.matches)
	w.matches = w.set.Match(l.hasher, &w.request, w.matches)
	if n := len(w.matches); n > first && w.matches[first].Limit < 0 {
		w.items = append(w.items, item{end: first, exempt: w.matches[first].Rule})
		w.matches = w.matches[:first]
		return nil
	}
	for i := first; i < len(w.matches); i++ {
		m := &w.matches[i]
		cost, err := m.Rule.Cost(&w.request, tokens)
		if err != nil {
			return invalid("attributes", "%v", err)
		}
		w.takes = append(w.takes, shard.Take{
			Key: m.Key, Limit: m.Held(), Cost: cost, Shadow: m.Shadow, OnFailure: policies[m.Rule.OnFailure],
			Strict: m.Rule.Durability == rules.Strict,
		})
	}
	w.items = append(w.items, item{end: len(w.takes)})
	return nil
}

// waitAtMost holds the last item against limits that let nobody wait for longer than that:
// who asks could not, and would go before his turn.
func (w *work) waitAtMost(longest time.Duration) {
	_, takes := w.item(len(w.items) - 1)
	for i := range takes {
		takes[i].Limit = takes[i].Limit.WaitAtMost(int64(longest))
	}
}

// delay is how long the turns that are booked let an allowed request wait.
func (w *work) delay() (longest time.Duration) {
	for i := range w.takes {
		if t := &w.takes[i]; answered(t) && !t.Shadow {
			longest = max(longest, time.Duration(t.Decision.Delay))
		}
	}
	return longest
}

var policies = [...]shard.Policy{
	rules.FailAllow: shard.FailOpen,
	rules.FailLocal: shard.FailLocal,
	rules.FailDeny:  shard.FailClosed,
}

// item returns the matches and takes of the i-th item.
func (w *work) item(i int) ([]rules.Match, []shard.Take) {
	begin, end := 0, w.items[i].end
	if i > 0 {
		begin = w.items[i-1].end
	}
	return w.matches[begin:end], w.takes[begin:end]
}

// lease asks that the caller be lent more of what the last group takes, of which it has
// so many tokens. Of a soft or elastic limit nothing is lent: who decides by himself
// could not tell what is above it.
func (w *work) lease(lend, tokens int64) {
	begin := 0
	if n := len(w.ends); n > 1 {
		begin = w.ends[n-2]
	}
	for i := begin; i < len(w.matches); i++ {
		if w.matches[i].Above > 0 {
			return
		}
	}
	g := &w.groups[len(w.groups)-1]
	g.Lend, g.Tokens = lend, tokens
}

// endGroup makes one group of the takes since the last one.
func (w *work) endGroup(peek bool) error {
	begin := 0
	if n := len(w.ends); n > 0 {
		begin = w.ends[n-1]
	}
	if n := len(w.takes) - begin; n > maxLimits {
		return invalid("rules", "%d limits apply to the request, more than %d", n, maxLimits)
	}
	if n := len(w.takes); n > maxBatchLimits {
		return invalid("rules", "%d limits apply up to here, more than %d for a batch", n, maxBatchLimits)
	}
	w.ends = append(w.ends, len(w.takes))
	w.groups = append(w.groups, shard.Group{Peek: peek})
	return nil
}

// errOverloaded answers a call if there was no time for one of its takes: it must not
// look like the decision of a limit, nor be let through like a failure.
var errOverloaded = status.Error(codes.ResourceExhausted,
	"overloaded: too many checks wait already for the node that counts; of a batch, others may have been counted")

// decide asks for all groups at once, and counts by rule what became of it. The error
// is errOverloaded, or nil.
func (l *Limiter) decide(ctx context.Context, w *work) error {
	l.ask(ctx, w)
	for i := range w.takes {
		if w.takes[i].Source == shard.Overloaded && !w.takes[i].Shadow {
			l.metrics.count(&verdictCounts{byOverload: {denied: uint64(len(w.items))}})
			return errOverloaded
		}
	}
	return nil
}

// ask is decide for those who tell an overload in another way.
func (l *Limiter) ask(ctx context.Context, w *work) {
	l.send(ctx, w)
	l.tallies.count(w)
}

// send is ask without counting.
func (l *Limiter) send(ctx context.Context, w *work) {
	begin := 0
	for i, end := range w.ends { // only now: takes may have moved while it grew
		w.groups[i].Takes = w.takes[begin:end:end]
		begin = end
	}
	l.decider.Decide(ctx, w.groups)
}

// verdict is the answer to one item.
type verdict struct {
	allowed bool
	source  source
	// by is the index in the item of the take that decided, -1 if there is none.
	by int
}

// source says who decided an item; its numbers index the metrics.
type source int

const (
	byOwner source = iota
	byNoRule
	byFailOpen
	byUnlimited
	byLocal
	byFailClosed
	byOverload
	byLent
	byStandby
	byCopy
	sources // how many there are
)

// sourceOf says who has answered a take.
func sourceOf(t *shard.Take) source {
	switch {
	case t.Source == shard.Owner:
		return byOwner
	case t.Source == shard.Local:
		return byLocal
	case t.Source == shard.Lent:
		return byLent
	case t.Source == shard.Standby:
		return byStandby
	case t.Source == shard.Provisional:
		return byCopy
	case t.Source == shard.Overloaded && !t.Shadow:
		return byOverload
	case t.OnFailure == shard.FailClosed:
		return byFailClosed
	}
	return byFailOpen
}

// judge finds the take that decided the i-th item.
func (w *work) judge(i int) verdict {
	_, takes := w.item(i)
	if w.items[i].exempt != nil {
		return verdict{allowed: true, source: byUnlimited, by: -1}
	}
	return judge(takes)
}

func judge(takes []shard.Take) verdict {
	if len(takes) == 0 {
		return verdict{allowed: true, source: byNoRule, by: -1}
	}
	v := verdict{allowed: true}
	for i := range takes {
		if denies(&takes[i]) {
			v.allowed = false
		}
		if decidesBefore(&takes[i], &takes[v.by]) {
			v.by = i
		}
	}
	v.source = sourceOf(&takes[v.by])
	return v
}

// denies reports whether t alone denies its item.
func denies(t *shard.Take) bool {
	return !t.Shadow && !t.Decision.Allowed && sourceOf(t) != byFailOpen
}

// decidesBefore reports whether a rather than b decides an item that both belong
// to: what denies, then what nobody has decided, then what is enforced, and of equals
// the tighter.
func decidesBefore(a, b *shard.Take) bool {
	switch x, y := denies(a), denies(b); {
	case x != y:
		return x
	case answered(a) != answered(b):
		// A denial that somebody has decided can tell when to come again.
		return answered(a) == x
	case !answered(a):
		return false
	case a.Shadow != b.Shadow:
		return b.Shadow
	}
	return tighter(a, b)
}

// tighter reports whether of two answers a leaves less: a denial before what had
// room, then the one that frees later, or the one with less left.
func tighter(a, b *shard.Take) bool {
	x, y := &a.Decision, &b.Decision
	switch {
	case x.Allowed != y.Allowed:
		return !x.Allowed
	case !x.Allowed && x.RetryAt != y.RetryAt:
		return x.RetryAt > y.RetryAt
	case x.Remaining != y.Remaining:
		return x.Remaining < y.Remaining
	default:
		return x.ResetAt > y.ResetAt
	}
}
