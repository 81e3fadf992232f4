package check

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// Decider answers groups wherever their counters live.
type Decider interface {
	Decide(ctx context.Context, groups []shard.Group)
	// HasTime reports whether owners have time for times*len(takes) takes, which are spread over nodes as these are.
	HasTime(takes []shard.Take, times int) bool
	// Owner returns the id of the node that owns a counter, "" if that is not known.
	Owner(key ring.Key) string
	// Standby returns the id of the node that has a copy of the counter, "" if there is none or that is not known.
	Standby(key ring.Key) string
}

// Config says how to build a Checker. All fields but the last three are required.
type Config struct {
	// Rules returns the rules to apply now.
	Rules func() *rules.Set
	// Hasher makes the keys of counters.
	Hasher ring.Hasher
	// Decider answers.
	Decider Decider
	// Metrics is where the metrics of checks are registered.
	Metrics prometheus.Registerer
	// Decisions is the decision log; nil is none.
	Decisions *decisionlog.Log
	// Tracing makes spans; nil is none.
	Tracing *tracing.Tracing
	// Top records the keys that are asked for most; nil is none.
	Top *topkeys.Recorder
}

// Checker decides requests of all APIs. It is safe for concurrent use; make it with New.
type Checker struct {
	Config
	metrics *metrics
	tallies *tallies
}

// New returns a Checker of the set that Rules returns at each request.
func New(c Config) *Checker {
	return &Checker{Config: c, metrics: newMetrics(c.Metrics), tallies: newTallies(c.Metrics, c.Rules, c.Top)}
}

// Begin empties w, for requests of the caller of ctx under the rules of now.
func (c *Checker) Begin(ctx context.Context, w *Work) {
	*w = Work{
		Set: c.Rules(), Caller: access.From(ctx), Request: rules.Request{Attributes: w.Request.Attributes[:0]},
		Matches: w.Matches[:0], Takes: w.Takes[:0], Items: w.Items[:0], Groups: w.Groups[:0], Ends: w.Ends[:0],
		notes: w.notes.reset(), Decoder: w.Decoder,
	}
}

// Match appends an item: a take for every limit that applies to w.Request. The
// error says which attribute is no cost.
func (c *Checker) Match(w *Work, tokens int64) error {
	first := len(w.Matches)
	w.Matches = w.Set.Match(c.Hasher, &w.Request, w.Matches)
	if n := len(w.Matches); n > first && w.Matches[first].Limit < 0 {
		w.Items = append(w.Items, Item{End: first, Exempt: w.Matches[first].Rule})
		w.Matches = w.Matches[:first]
		return nil
	}
	for i := first; i < len(w.Matches); i++ {
		m := &w.Matches[i]
		cost, err := m.Rule.Cost(&w.Request, tokens)
		if err != nil && !w.DenyInvalidCosts {
			return wire.Invalid("attributes", "%v", err)
		}
		w.Takes = append(w.Takes, shard.Take{
			Key: m.Key, Limit: m.Held(), Cost: cost, Shadow: m.Shadow, OnFailure: PolicyOf(m.Rule),
			Strict: m.Rule.Durability == rules.Strict,
		})
		if err != nil {
			w.saturate(&w.Takes[len(w.Takes)-1], tokens)
		}
	}
	w.Items = append(w.Items, Item{End: len(w.Takes)})
	return nil
}

// ErrOverloaded answers a call if there was no time for one of its takes: it must not look like the
// decision of a limit, nor be allowed like a failure.
var ErrOverloaded = status.Error(codes.ResourceExhausted,
	"overloaded: too many checks wait already for the node that counts; of a batch, others may have been counted")

// Decide asks for all groups at once, and counts by rule what became of it. The error
// is ErrOverloaded, or nil.
func (c *Checker) Decide(ctx context.Context, w *Work) error {
	c.Send(ctx, w)
	c.CountLimits(w)
	if c.Decisions != nil && w.API != "" {
		c.logDecisions(ctx, w)
	}
	for i := range w.Takes {
		if w.Takes[i].Source == shard.Overloaded && !w.Takes[i].Shadow {
			c.CountOverloaded(len(w.Items))
			c.TellSpan(w, false, Verdict{Source: ByOverload, By: -1})
			return ErrOverloaded
		}
	}
	if w.span != nil {
		v := w.Judge(0)
		c.TellSpan(w, v.Allowed, v)
	}
	return nil
}

// Send is Decide without counting, for APIs that report an overload in another way.
func (c *Checker) Send(ctx context.Context, w *Work) {
	begin := 0
	for i, end := range w.Ends { // only now: takes may have moved while it grew
		w.Groups[i].Takes = w.Takes[begin:end:end]
		begin = end
	}
	c.Decider.Decide(ctx, w.Groups)
}

// ErrNoRules answers a call at a node that has no rules yet: without them all would be allowed.
var ErrNoRules = status.Error(codes.Unavailable, "this node has no rules yet, ask another one; GET /v1/health says what it waits for")

// MayAsk refuses requests before there are rules, and in a domain in which their caller may make no checks.
func (w *Work) MayAsk() error {
	if w.Set.Missing() {
		return ErrNoRules
	}
	if w.Caller == nil {
		return nil
	}
	return access.StatusOf(w.Caller.In(access.Check, w.Request.Domain))
}

var policies = [...]shard.Policy{
	rules.FailAllow: shard.FailOpen,
	rules.FailLocal: shard.FailLocal,
	rules.FailDeny:  shard.FailClosed,
}

// PolicyOf returns what happens to takes of r that no node answers.
func PolicyOf(r *rules.Rule) shard.Policy { return policies[r.OnFailure] }
