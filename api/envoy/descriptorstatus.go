package envoy

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	envoyrules "github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/shard"
)

// descriptorStatus is a DescriptorStatus.
type descriptorStatus struct {
	over      bool // code, which is OK if the rule is a shadow
	quota     bool // over, it denies only if all like it are
	unlimited bool
	passed    bool // its metadata is told

	limited   bool // it has what follows
	requests  uint32
	unit      envoyrules.Unit
	multiple  uint64 // of the unit, 0 or 1 if it is not told
	name      string
	remaining uint32
	reset     int64 // nanoseconds
}

// result is what becomes of a request as a whole.
type result struct {
	over bool
	told int // index of the status that headers tell, -1 for none
}

// errUndecided leaves it to Envoy what happens to a request: it has a policy for that.
var errUndecided = status.Error(codes.Unavailable, "the node that counts does not answer")

// judge makes statuses of the answers, and counts verdicts.
func (s *Service) judge(ctx context.Context, w *work) (result, error) {
	var verdicts check.VerdictCounts
	for i := range w.asked {
		a := &w.asked[i]
		var st descriptorStatus
		v := w.Judge(i)
		switch a.kind {
		case byRules:
			st, v = w.rulesStatus(i, v, s.config.Shadow || s.config.Quota)
		case byFreedom:
			st.unlimited, st.passed, st.remaining = true, true, math.MaxUint32
			v.Source = check.ByUnlimited
		case byDescriptor:
			_, takes := w.Item(i)
			t := &takes[0]
			if !check.Answered(t) && t.Source != shard.Overloaded {
				return result{}, errUndecided
			}
			st = a.status(t)
			v = check.Verdict{Allowed: !st.over, Source: check.SourceOf(t)}
			if t.Source == shard.Overloaded {
				v.Source = check.ByOverload
			}
			s.stats.count(w.name(i), a, t)
		default:
			st.passed = true
		}
		st.quota = !st.unlimited && (s.config.Quota || a.quota())
		verdicts.Add(v)
		w.verdicts = append(w.verdicts, v)
		w.statuses = append(w.statuses, st)
	}
	s.checks.CountVerdicts(&verdicts)
	r := conclude(w.statuses)
	if r.over {
		s.takeBack(ctx, w)
	}
	if r.over && s.config.Shadow {
		s.stats.globalShadow.Inc()
		r.over = false
	}
	return r, nil
}

// name is what metrics call the i-th limit.
func (w *work) name(i int) []byte {
	begin := 0
	if i > 0 {
		begin = w.asked[i-1].nameEnd
	}
	return w.names[begin:w.asked[i].nameEnd]
}

// normalize makes decisions of takes that were held against another limit than they are
// about what they would be.
func (s *Service) normalize(w *work) {
	for i := range w.asked {
		a := &w.asked[i]
		if a.kind != byDescriptor {
			continue
		}
		_, takes := w.Item(i)
		s.normalizeTake(a, &takes[0])
	}
}

// normalizeTake is normalize for one take of a.
func (s *Service) normalizeTake(a *asked, t *shard.Take) {
	if !check.Answered(t) {
		return
	}
	d := &t.Decision
	if s.config.CountDenied {
		t.Shadow = s.isShadow(a)
		a.used = t.Limit.Limit - d.Remaining
		d.Allowed = a.negative || d.Allowed && a.used <= int64(a.requests) && !a.tooMany
		d.Remaining = max(0, int64(a.requests)-a.used)
		return
	}
	d.Remaining += int64(a.requests) - a.limit.Limit
	a.used = int64(a.requests) - d.Remaining
}

// status is the status of a descriptor's limit that was asked.
func (a *asked) status(t *shard.Take) descriptorStatus {
	if t.Source == shard.Overloaded { // a denial: Envoy would let an error through
		return descriptorStatus{over: true}
	}
	d := &t.Decision
	s := descriptorStatus{
		over: !d.Allowed && !a.shadow(), limited: true,
		requests: a.requests, unit: a.unit, multiple: a.multiple, name: a.name(),
		reset: untilReset(&a.limit, d),
	}
	if s.passed = !s.over; d.Allowed {
		s.remaining = uint32(d.Remaining)
	}
	return s
}

// untilReset is when a limit is as new, in whole seconds as in envoyproxy/ratelimit: at
// the end of its window. Where windows have no ends, a denied request is told when it
// would pass.
func untilReset(l *algorithms.Limit, d *algorithms.Decision) int64 {
	until := d.ResetAt - d.At
	switch {
	case l.Algorithm.Forgets():
		until = l.Window - d.At%l.Window
	case !d.Allowed && d.RetryAt != algorithms.Never:
		until = d.RetryAt - d.At
	}
	return check.CeilSeconds(until) * int64(time.Second)
}

// rulesStatus is the status of the i-th descriptor, which rules decide, with shadows
// only so that it denies nothing.
func (w *work) rulesStatus(i int, v check.Verdict, shadows bool) (descriptorStatus, check.Verdict) {
	matches, takes := w.Item(i)
	for j := 0; j < len(takes) && shadows; j++ { // those of rules that are none
		if t := &takes[j]; t.Shadow && !matches[j].Shadow && (t.Source == shard.Overloaded || check.Answered(t) && !t.Decision.Allowed) {
			v.Allowed, v.By = false, j
		}
	}
	s := descriptorStatus{over: !v.Allowed, passed: v.Allowed}
	if v.Source == check.ByUnlimited {
		s.unlimited, s.remaining = true, math.MaxUint32
	}
	if v.By < 0 || !check.Answered(&takes[v.By]) {
		return s, v
	}
	m, d := &matches[v.By], &takes[v.By].Decision
	nominal := &m.Rule.Limits[m.Limit]
	s.limited, s.requests, s.name = true, uint32(nominal.Limit), m.Rule.ID
	s.unit, s.multiple = unitOf(nominal)
	s.reset = d.ResetAt - d.At
	if v.Allowed {
		s.remaining = check.Remaining(m, d)
	}
	return s, v
}

// conclude decides the request: it is over its limit if a descriptor is, or if there are
// some with quota and all of them are. What headers tell is the descriptor closest to
// its limit, or the last one that is over it.
func conclude(statuses []descriptorStatus) result {
	r := result{told: -1}
	quotas, quotasOver := 0, 0
	least := uint32(math.MaxUint32)
	for i := range statuses {
		s := &statuses[i]
		if s.limited && s.remaining < least {
			r.told, least = i, s.remaining
		}
		switch {
		case s.quota && s.over:
			quotas, quotasOver = quotas+1, quotasOver+1
		case s.quota:
			quotas++
		case s.over:
			r.over = true
			if s.limited {
				r.told = i
			}
		}
	}
	r.over = r.over || quotas > 0 && quotas == quotasOver
	return r
}
