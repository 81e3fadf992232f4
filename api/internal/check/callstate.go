package check

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// Work holds what it takes to decide some requests; it is used again for others. The zero value is for Begin.
type Work struct {
	Set              *rules.Set        // what the matches belong to
	Caller           *access.Principal // nil if it is not restricted to some domains
	Request          rules.Request
	DenyInvalidCosts bool // costs that are too high, or none, are denied rather than refused
	InvalidCosts     int  // how many takes have such a cost
	Matches          []rules.Match
	Takes            []shard.Take // one per match
	Items            []Item
	Groups           []shard.Group
	Ends             []int // of each group's takes
	// API is what the decision log calls the call, whose items Decide logs; empty: it is not logged, or not by Decide.
	API string
	// Start is when the call came, for the lists of keys; zero: it is not in them.
	Start time.Time
	// Decoder has the items; nil: w.Request is the only one. It stays when w is used again.
	Decoder ItemDecoder
	drawn   drawn
	notes   *notes     // nil without a decision log
	span    trace.Span // of the call; nil unless it is traced
	told    bool       // what became of it
}

// Observe observes the time since Start. If the call is traced, the id of its trace is the exemplar.
func (w *Work) Observe(duration prometheus.Observer) {
	seconds := time.Since(w.Start).Seconds()
	if w.span == nil {
		duration.Observe(seconds)
		return
	}
	w.observeTraced(duration, seconds)
}

// observeTraced is not in Observe, which is then inlined.
func (w *Work) observeTraced(duration prometheus.Observer, seconds float64) {
	if o, ok := duration.(prometheus.ExemplarObserver); ok {
		o.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": w.span.SpanContext().TraceID().String()})
		return
	}
	duration.Observe(seconds)
}

// ItemDecoder has the requests of a Work, which keeps only the last one.
type ItemDecoder interface {
	// Again returns the i-th item as it was matched. It changes nothing in the Work.
	Again(i int) rules.Request
}

// Item is one thing that was asked for: a request, or a descriptor of one.
type Item struct {
	End    int         // of its matches and takes
	Exempt *rules.Rule // the rule that exempts it from all limits, or nil
}

// Item returns the matches and takes of the i-th item.
func (w *Work) Item(i int) ([]rules.Match, []shard.Take) {
	begin, end := 0, w.Items[i].End
	if i > 0 {
		begin = w.Items[i-1].End
	}
	return w.Matches[begin:end], w.Takes[begin:end]
}

// WaitAtMost checks the last item against limits without longer waits: this caller cannot wait longer, and
// would not take its turn.
func (w *Work) WaitAtMost(longest time.Duration) {
	_, takes := w.Item(len(w.Items) - 1)
	for i := range takes {
		takes[i].Limit = takes[i].Limit.WaitAtMost(int64(longest))
	}
}

// saturate makes t, whose cost cannot be told, one that its limit has no room for. Of what
// is given back, nothing is.
func (w *Work) saturate(t *shard.Take, tokens int64) {
	w.InvalidCosts++
	t.Cost = 0
	if tokens > 0 {
		t.Cost = algorithms.MaxCost
		LeaveNoRoom(t)
	}
}

// LeaveNoRoom has a take be denied that costs MaxCost, because it stands for one that costs
// more. Only the highest limit there is would have room for it.
func LeaveNoRoom(t *shard.Take) {
	t.Limit.Limit = min(t.Limit.Limit, algorithms.MaxCost-1)
	t.Limit.Burst = min(t.Limit.Burst, algorithms.MaxCost-1)
}

// AddGroup makes one group of the takes since the last one. Their number is bounded by the API.
func (w *Work) AddGroup(peek bool) {
	w.Ends = append(w.Ends, len(w.Takes))
	w.Groups = append(w.Groups, shard.Group{Peek: peek})
}
