package check

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// notes are what the decision log tells of the requests of one Work, which keeps only the last one.
type notes struct {
	entries []rules.Attribute
	asked   []asked
}

// asked is one item that was asked for.
type asked struct {
	domain string
	end    int // of its entries
	tokens int64
}

// Note keeps w.Request, which is the next item, for the decision log.
func (c *Checker) Note(w *Work, tokens int64) {
	if c.Decisions != nil { // the compiler puts no more than this in its place
		w.note(tokens)
	}
}

func (w *Work) note(tokens int64) {
	if w.notes == nil {
		w.notes = new(notes)
	}
	n := w.notes
	n.entries = append(n.entries, w.Request.Attributes...)
	n.asked = append(n.asked, asked{domain: w.Request.Domain, end: len(n.entries), tokens: tokens})
}

// reset forgets what was noted, and keeps the memory.
func (n *notes) reset() *notes {
	if n != nil {
		clear(n.entries)
		n.entries, n.asked = n.entries[:0], n.asked[:0]
	}
	return n
}

// lineOf returns the name of a line and its descriptors, of which n were noted.
func (c *Checker) lineOf(ctx context.Context, w *Work, api string) *decisionlog.Line {
	l := lines.Get().(*decisionlog.Line)
	*l = decisionlog.Line{Time: time.Now(), API: api, RulesHash: w.Set.Hash(), Domain: w.Request.Domain, Descriptors: l.Descriptors[:0]}
	if sc := tracing.Remote(ctx); sc.HasTraceID() {
		l.TraceID = sc.TraceID().String()
	}
	return l
}

var lines = sync.Pool{New: func() any { return new(decisionlog.Line) }}

// logDecisions has a line written for each item of w, all of which were noted and are groups of their own.
func (c *Checker) logDecisions(ctx context.Context, w *Work) {
	for i := range w.Items {
		v := w.Judge(i)
		matches, takes := w.Item(i)
		if overloaded(takes) { // it is an error of the call
			v = Verdict{Source: ByOverload, By: -1}
		}
		if !c.Decisions.Wants(!v.Allowed, counterOf(takes)) {
			continue
		}
		l, g := c.lineOf(ctx, w, w.API), &w.Groups[i]
		l.Domain, l.Allowed, l.Source = w.notes.asked[i].domain, v.Allowed, sourceNames[v.Source]
		l.Peek, l.LentAt = g.Peek, g.LentAt
		if g.TokenLease.Tokens > 0 {
			l.Lent, l.LentFor = g.TokenLease.Tokens, g.Tokens
		}
		c.describe(l, w, i, v, matches, takes)
		c.Decisions.Add(l)
		lines.Put(l)
	}
}

func overloaded(takes []shard.Take) bool {
	for i := range takes {
		if takes[i].Source == shard.Overloaded && !takes[i].Shadow {
			return true
		}
	}
	return false
}

// counterOf is a number of the first counter of a check, 0 if it has none. Limits of one rule and subject have the same.
func counterOf(takes []shard.Take) uint64 {
	if len(takes) == 0 {
		return 0
	}
	return max(1, takes[0].Key.Lo)
}

// describe adds the i-th item as a descriptor.
func (c *Checker) describe(l *decisionlog.Line, w *Work, i int, v Verdict, matches []rules.Match, takes []shard.Take) {
	var d *decisionlog.Descriptor
	if n := len(l.Descriptors); n < cap(l.Descriptors) { // for the memory of its lists
		l.Descriptors = l.Descriptors[:n+1]
		d = &l.Descriptors[n]
	} else {
		l.Descriptors = append(l.Descriptors, decisionlog.Descriptor{})
		d = &l.Descriptors[n]
	}
	begin := 0
	if i > 0 {
		begin = w.notes.asked[i-1].end
	}
	*d = decisionlog.Descriptor{
		Entries: d.Entries[:0], Limits: d.Limits[:0],
		Tokens: w.notes.asked[i].tokens, Allowed: v.Allowed, Source: sourceNames[v.Source],
	}
	for _, a := range w.notes.entries[begin:w.notes.asked[i].end] {
		d.Entries = append(d.Entries, decisionlog.Entry{Key: a.Key, Value: c.valueOf(a)})
	}
	if exempt := w.Items[i].Exempt; exempt != nil {
		d.Unlimited = exempt.ID
	}
	for j := range takes {
		d.Limits = append(d.Limits, limitOf(&matches[j], &takes[j]))
	}
}

// valueOf returns a value as it is logged: a hash that only those with the cluster's secret can make, and of which
// the name is part.
func (c *Checker) valueOf(a rules.Attribute) string {
	if c.Decisions.Clear() {
		return a.Value
	}
	return HashedValue(c.Hasher, a)
}

// keyText is a key in hexadecimal.
func keyText(k ring.Key) string {
	const hex = "0123456789abcdef"
	var b [32]byte
	for i := range 16 {
		b[i], b[16+i] = hex[k.Hi>>(60-4*i)&15], hex[k.Lo>>(60-4*i)&15]
	}
	return string(b[:])
}

// limitOf is one limit and its answer.
func limitOf(m *rules.Match, t *shard.Take) decisionlog.Limit {
	l := decisionlog.Limit{
		Counter: keyText(t.Key), Algorithm: t.Limit.Algorithm.String(), Limit: t.Limit.Limit, Window: t.Limit.Window,
		Burst: t.Limit.Burst, MaxDelay: t.Limit.MaxDelay, Buckets: t.Limit.Buckets, Cost: t.Cost, Shadow: t.Shadow,
		Source: sourceNames[SourceOf(t)], Shares: int64(t.Shares), Leases: t.Leases,
	}
	if t.Limit.Calendar != nil {
		l.Calendar = t.Limit.Calendar.String()
	}
	if m.Rule != nil {
		l.Rule, l.Index = m.Rule.ID, m.Limit
		if nominal := m.Rule.Limits[m.Limit].Limit; nominal != l.Limit {
			l.Nominal = nominal
		}
	}
	if t.Source == shard.Overloaded {
		l.Source = sourceNames[ByOverload]
	}
	if !Answered(t) {
		return l
	}
	d := &t.Decision
	l.Allowed, l.At, l.Remaining, l.ResetAt, l.Delay = d.Allowed, d.At, d.Remaining, d.ResetAt, d.Delay
	if !d.Allowed && d.RetryAt != algorithms.Never {
		l.RetryAt = d.RetryAt
	}
	return l
}

// Call is what the decision log tells of a check that is a whole call with several items.
type Call struct {
	API      string
	Takes    []shard.Take // as the counters answered
	Verdicts []Verdict    // of the items
	Allowed  bool
	Source   string // one that is no Source; empty: that of the item that decided
	Returned bool
	// Limits are by take the tokens of a limit that the call has brought with it; nil: all limits are of rules.
	Limits []int64
	// CountDenied, Shadow and Quota are options of the node.
	CountDenied, Shadow, Quota bool
}

// LogCall has a line written for a call whose items are one group. All of them were noted.
func (c *Checker) LogCall(ctx context.Context, w *Work, call Call) {
	if !c.Decisions.Wants(!call.Allowed, counterOf(call.Takes)) {
		return
	}
	l := c.lineOf(ctx, w, call.API)
	l.Allowed, l.Source, l.Returned = call.Allowed, call.Source, call.Returned
	l.CountDenied, l.Shadow, l.Quota = call.CountDenied, call.Shadow, call.Quota
	least := int64(math.MaxInt64)
	begin := 0
	for i, v := range call.Verdicts {
		end := w.Items[i].End
		takes := call.Takes[begin:end]
		c.describe(l, w, i, v, w.Matches[begin:end], takes)
		if call.Limits != nil {
			nominal(l.Descriptors[i].Limits, call.Limits[begin:end], call.CountDenied)
		}
		// The descriptor that decided is one like the call, and of these the one with the least left.
		if call.Source == "" && v.Allowed == call.Allowed && (l.Source == "" || leastLeft(takes) < least) {
			l.Source, least = sourceNames[v.Source], min(least, leastLeft(takes))
		}
		begin = end
	}
	if l.Source == "" { // what would have denied it does not
		l.Source = sourceNames[ByOwner]
		if len(call.Verdicts) > 0 {
			l.Source = sourceNames[call.Verdicts[0].Source]
		}
	}
	c.Decisions.Add(l)
	lines.Put(l)
}

// nominal completes limits that a call has brought with it by their tokens, which are 0 for those of rules. If what is denied counts, too,
// all are held against another limit.
func nominal(limits []decisionlog.Limit, tokens []int64, countDenied bool) {
	for i, n := range tokens {
		if limits[i].Rule == "" && (countDenied || n != limits[i].Limit) {
			limits[i].Nominal = n
		}
	}
}

func leastLeft(takes []shard.Take) int64 {
	least := int64(math.MaxInt64)
	for i := range takes {
		if Answered(&takes[i]) {
			least = min(least, takes[i].Decision.Remaining)
		}
	}
	return least
}
