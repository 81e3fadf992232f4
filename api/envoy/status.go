package envoy

import (
	"context"
	"math"
	"strconv"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
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

// errUnanswered leaves it to Envoy what happens to a request: it has a policy for that.
var errUnanswered = status.Error(codes.Unavailable, "the node that counts does not answer")

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
				return result{}, errUnanswered
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

// takeBack gives back what a request has taken that is denied by descriptors which do
// not deny alone: the node that counts could not know.
func (s *Service) takeBack(ctx context.Context, w *work) {
	if !w.Groups[0].Allowed || s.config.CountDenied || s.config.Shadow {
		return
	}
	back := []shard.Group{{}}
	var of []int
	for i := range w.Takes {
		if t := w.Takes[i]; check.Answered(&t) && t.Decision.Allowed && t.Cost > 0 {
			t.Cost = -t.Cost
			back[0].Takes, of = append(back[0].Takes, t), append(of, i)
		}
	}
	if len(of) == 0 {
		return
	}
	w.returned = true
	s.checks.Decider.Decide(ctx, back)
	for j, i := range of {
		if t := &back[0].Takes[j]; check.Answered(t) {
			w.Takes[i].Decision.Remaining = t.Decision.Remaining
		}
	}
	for i := range w.asked {
		if a, st := &w.asked[i], &w.statuses[i]; a.kind == byDescriptor && st.limited && !st.over {
			_, takes := w.Item(i)
			st.remaining = uint32(max(0, takes[0].Decision.Remaining+int64(a.requests)-a.limit.Limit))
		}
	}
}

// appendResponse appends a RateLimitResponse.
func (s *Service) appendResponse(b []byte, w *work, r result) []byte {
	for i := range w.statuses {
		b = w.statuses[i].appendTo(b)
	}
	for range w.list.N - len(w.statuses) { // none, unless there are too many
		b = (&descriptorStatus{over: true}).appendTo(b)
	}
	if names := s.config.Headers; len(names) > 0 && r.told >= 0 {
		st := &w.statuses[r.told]
		reset := check.CeilSeconds(st.reset)
		for i, value := range []int64{int64(st.requests), int64(st.remaining), reset} {
			b = appendHeader(b, names[i], value)
		}
		if r.over && st.over {
			b = appendHeader(b, "Retry-After", max(1, reset))
		}
	}
	if s.config.Metadata {
		b = appendMetadata(b, w)
	}
	overall := rlsv3.RateLimitResponse_OK
	if r.over {
		overall = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return wire.AppendVarint(b, 1, uint64(overall))
}

// appendHeader appends a HeaderValue to add to the response.
func appendHeader(b []byte, name string, value int64) []byte {
	b, begin := wire.BeginMessage(b, 3)
	b = wire.AppendString(b, 1, name)
	b = wire.AppendString(b, 2, strconv.FormatInt(value, 10))
	return wire.EndMessage(b, begin)
}

// appendTo appends a DescriptorStatus.
func (s *descriptorStatus) appendTo(b []byte) []byte {
	b, begin := wire.BeginMessage(b, 2)
	code := rlsv3.RateLimitResponse_OK
	if s.over {
		code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	b = wire.AppendVarint(b, 1, uint64(code))
	if s.limited {
		var limit int
		b, limit = wire.BeginMessage(b, 2)
		b = wire.AppendVarint(b, 1, uint64(s.requests))
		b = wire.AppendVarint(b, 2, uint64(s.unit))
		b = wire.AppendString(b, 3, s.name)
		if s.multiple > 1 {
			b = appendUint(b, 4, s.multiple)
		}
		b = wire.EndMessage(b, limit)
	}
	b = wire.AppendVarint(b, 3, uint64(s.remaining))
	if s.limited {
		b = wire.AppendDuration(b, 4, s.reset)
	}
	return wire.EndMessage(b, begin)
}

// appendUint appends a UInt32Value.
func appendUint(b []byte, number protowire.Number, v uint64) []byte {
	b, begin := wire.BeginMessage(b, number)
	b = wire.AppendVarint(b, 1, v)
	return wire.EndMessage(b, begin)
}

// unitOf is the largest unit that a limit's window is a multiple of, and which one. A month has 30 days
// and a year 365, as in Envoy's reference server, except for calendars. It is 0 if there is none.
func unitOf(l *algorithms.Limit) (unit envoyrules.Unit, multiple uint64) {
	if l.Calendar != nil {
		name, _, _ := strings.Cut(l.Calendar.String(), "/")
		return envoyrules.ParseUnit(name), 1
	}
	for u := envoyrules.Second; u.Window() > 0; u++ {
		if l.Window%u.Window() == 0 && u.Window() > unit.Window() {
			unit, multiple = u, uint64(l.Window/u.Window())
		}
	}
	return unit, multiple
}
