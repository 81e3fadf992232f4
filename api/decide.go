package api

import (
	"context"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// Decider answers groups wherever their counters live. *cluster.Router is one.
type Decider interface {
	Decide(ctx context.Context, groups []shard.Group)
}

// Limiter decides requests. It is safe for concurrent use; make it with
// NewLimiter.
type Limiter struct {
	rules   func() *rules.Set
	hasher  ring.Hasher
	decider Decider
	metrics *metrics
	works   sync.Pool // of *work
}

// NewLimiter returns a Limiter of whatever rules returns at the time.
func NewLimiter(c Config) *Limiter {
	return &Limiter{
		rules:   c.Rules,
		hasher:  c.Hasher,
		decider: c.Decider,
		metrics: newMetrics(c.Metrics),
		works:   sync.Pool{New: func() any { return new(work) }},
	}
}

// work holds what it takes to decide some requests; it is used again for others.
// Every request adds one group, whose takes belong to matches of the same index.
type work struct {
	request rules.Request
	matches []rules.Match
	takes   []shard.Take
	groups  []shard.Group
	ends    []int // of each group's takes
}

func (l *Limiter) newWork() *work {
	w := l.works.Get().(*work)
	w.request.Attributes = w.request.Attributes[:0]
	w.matches = w.matches[:0]
	w.takes = w.takes[:0]
	w.groups = w.groups[:0]
	w.ends = w.ends[:0]
	return w
}

// match appends a take of cost for every limit that applies to w.request.
func (l *Limiter) match(w *work, set *rules.Set, cost int64) {
	first := len(w.matches)
	w.matches = set.Match(l.hasher, &w.request, w.matches)
	for _, m := range w.matches[first:] {
		w.takes = append(w.takes, shard.Take{Key: m.Key, Limit: m.Rule.Limits[m.Limit], Cost: cost})
	}
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

// shed reports whether there was no time for the call, as an error, and counts it.
func (l *Limiter) shed(w *work) error {
	for i := range w.takes {
		if w.takes[i].Source == shard.Overloaded && !w.takes[i].Shadow {
			for range w.groups {
				l.metrics.count(verdict{source: byOverload})
			}
			return errOverloaded
		}
	}
	return nil
}

// decide asks for all groups at once.
func (l *Limiter) decide(ctx context.Context, w *work) {
	begin := 0
	for i, end := range w.ends { // only now: takes may have moved while it grew
		w.groups[i].Takes = w.takes[begin:end:end]
		begin = end
	}
	l.decider.Decide(ctx, w.groups)
}

// verdict is the answer to one group, after the failure policy.
type verdict struct {
	allowed bool
	source  source
	// by is the index in the group of the take that decided, -1 if there is none.
	by int
}

// source says who decided a request; its numbers index the metrics.
type source int

const (
	byOwner source = iota
	byNoRule
	byFailOpen
	byOverload
	sources // how many there are
)

// judge applies the failure policy, which is to let through, and finds the take
// that decided. One that there was no time for denies, unless it is a shadow.
func judge(takes []shard.Take) verdict {
	if len(takes) == 0 {
		return verdict{allowed: true, source: byNoRule, by: -1}
	}
	v := verdict{allowed: true, by: -1}
	unanswered := -1
	for i := range takes {
		t := &takes[i]
		if t.Source == shard.Overloaded && !t.Shadow {
			return verdict{source: byOverload, by: i}
		}
		if t.Source == shard.Unanswered || t.Source == shard.Overloaded {
			unanswered = i
			continue
		}
		if v.by < 0 || tighter(t, &takes[v.by]) {
			v.by = i
		}
		v.allowed = v.allowed && t.Decision.Allowed
	}
	if v.allowed && unanswered >= 0 {
		return verdict{allowed: true, source: byFailOpen, by: unanswered}
	}
	return v
}

// tighter reports whether a rather than b decides a request that both belong to:
// a denial before what had room, then the one that frees later, or the one with
// less left.
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
