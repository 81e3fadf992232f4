package api

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
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// envoyStatus is a DescriptorStatus.
type envoyStatus struct {
	over      bool // code, which is OK if the rule is a shadow
	quota     bool // over, it denies only if all like it are
	unlimited bool
	passed    bool // its metadata is told

	limited   bool // it has what follows
	requests  uint32
	unit      rules.Unit
	multiple  uint64 // of the unit, 0 or 1 if it is not told
	name      string
	remaining uint32
	reset     int64 // nanoseconds
}

// envoyResult is what becomes of a request as a whole.
type envoyResult struct {
	over bool
	told int // index of the status that headers tell, -1 for none
}

// errUnanswered leaves it to Envoy what happens to a request: it has a policy for that.
var errUnanswered = status.Error(codes.Unavailable, "the node that counts does not answer")

// judgeEnvoy makes statuses of the answers, and counts verdicts.
func (l *Limiter) judgeEnvoy(ctx context.Context, w *work) (envoyResult, error) {
	var verdicts verdictCounts
	for i := range w.envoy.asked {
		a := &w.envoy.asked[i]
		var s envoyStatus
		v := w.judge(i)
		switch a.kind {
		case byRules:
			s, v = w.rulesStatus(i, v, l.envoyConfig.Shadow || l.envoyConfig.Quota)
		case byFreedom:
			s.unlimited, s.passed, s.remaining = true, true, math.MaxUint32
			v.source = byUnlimited
		case byDescriptor:
			_, takes := w.item(i)
			t := &takes[0]
			if !answered(t) && t.Source != shard.Overloaded {
				return envoyResult{}, errUnanswered
			}
			s = a.status(t)
			v = verdict{allowed: !s.over, source: sourceOf(t)}
			if t.Source == shard.Overloaded {
				v.source = byOverload
			}
			l.envoyStats.count(w.envoy.name(i), a, t)
		default:
			s.passed = true
		}
		s.quota = !s.unlimited && (l.envoyConfig.Quota || a.quota())
		verdicts.add(v)
		w.envoy.statuses = append(w.envoy.statuses, s)
	}
	l.metrics.count(&verdicts)
	r := l.conclude(w.envoy.statuses)
	if r.over {
		l.takeBack(ctx, w)
	}
	if r.over && l.envoyConfig.Shadow {
		l.envoyStats.globalShadow.Inc()
		r.over = false
	}
	return r, nil
}

// name is what metrics call the i-th limit.
func (w *envoyWork) name(i int) []byte {
	begin := 0
	if i > 0 {
		begin = w.asked[i-1].nameEnd
	}
	return w.names[begin:w.asked[i].nameEnd]
}

// normalize makes decisions of takes that were held against another limit than they are
// about what they would be.
func (l *Limiter) normalize(w *work) {
	for i := range w.envoy.asked {
		a := &w.envoy.asked[i]
		if a.kind != byDescriptor {
			continue
		}
		_, takes := w.item(i)
		t := &takes[0]
		if !answered(t) {
			continue
		}
		d := &t.Decision
		if l.envoyConfig.CountDenied {
			t.Shadow = l.isShadow(a)
			a.used = t.Limit.Limit - d.Remaining
			d.Allowed = a.negative || d.Allowed && a.used <= int64(a.requests)
			d.Remaining = max(0, int64(a.requests)-a.used)
			continue
		}
		d.Remaining += int64(a.requests) - a.limit.Limit
		a.used = int64(a.requests) - d.Remaining
	}
}

// status is the status of a descriptor's limit that was asked.
func (a *asked) status(t *shard.Take) envoyStatus {
	if t.Source == shard.Overloaded { // a denial: Envoy would let an error through
		return envoyStatus{over: true}
	}
	d := &t.Decision
	s := envoyStatus{
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
	case l.Algorithm == algorithms.FixedWindow:
		until = l.Window - d.At%l.Window
	case !d.Allowed && d.RetryAt != algorithms.Never:
		until = d.RetryAt - d.At
	}
	return ceilSeconds(until) * int64(time.Second)
}

// rulesStatus is the status of the i-th descriptor, which rules decide, with shadows
// only so that it denies nothing.
func (w *work) rulesStatus(i int, v verdict, shadows bool) (envoyStatus, verdict) {
	matches, takes := w.item(i)
	for j := 0; j < len(takes) && shadows; j++ { // those of rules that are none
		if t := &takes[j]; t.Shadow && !matches[j].Shadow && (t.Source == shard.Overloaded || answered(t) && !t.Decision.Allowed) {
			v.allowed, v.by = false, j
		}
	}
	s := envoyStatus{over: !v.allowed, passed: v.allowed}
	if v.source == byUnlimited {
		s.unlimited, s.remaining = true, math.MaxUint32
	}
	if v.by < 0 || !answered(&takes[v.by]) {
		return s, v
	}
	m, d := &matches[v.by], &takes[v.by].Decision
	nominal := &m.Rule.Limits[m.Limit]
	s.limited, s.requests, s.name = true, uint32(nominal.Limit), m.Rule.ID
	s.unit, s.multiple = envoyUnit(nominal)
	s.reset = d.ResetAt - d.At
	if v.allowed {
		s.remaining = remaining(m, d)
	}
	return s, v
}

// conclude decides the request: it is over its limit if a descriptor is, or if there are
// some with quota and all of them are. What headers tell is the descriptor closest to
// its limit, or the last one that is over it.
func (l *Limiter) conclude(statuses []envoyStatus) envoyResult {
	r := envoyResult{told: -1}
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
func (l *Limiter) takeBack(ctx context.Context, w *work) {
	if !w.groups[0].Allowed || l.envoyConfig.CountDenied || l.envoyConfig.Shadow {
		return
	}
	back := []shard.Group{{}}
	var of []int
	for i := range w.takes {
		if t := w.takes[i]; answered(&t) && t.Decision.Allowed && t.Cost > 0 {
			t.Cost = -t.Cost
			back[0].Takes, of = append(back[0].Takes, t), append(of, i)
		}
	}
	if len(of) == 0 {
		return
	}
	l.decider.Decide(ctx, back)
	for j, i := range of {
		if t := &back[0].Takes[j]; answered(t) {
			w.takes[i].Decision.Remaining = t.Decision.Remaining
		}
	}
	for i := range w.envoy.asked {
		if a, s := &w.envoy.asked[i], &w.envoy.statuses[i]; a.kind == byDescriptor && s.limited && !s.over {
			_, takes := w.item(i)
			s.remaining = uint32(max(0, takes[0].Decision.Remaining+int64(a.requests)-a.limit.Limit))
		}
	}
}

// appendEnvoyResponse appends a RateLimitResponse.
func (l *Limiter) appendEnvoyResponse(b []byte, w *work, r envoyResult) []byte {
	for i := range w.envoy.statuses {
		b = w.envoy.statuses[i].append(b)
	}
	if names := l.envoyConfig.Headers; len(names) > 0 && r.told >= 0 {
		s := &w.envoy.statuses[r.told]
		reset := ceilSeconds(s.reset)
		for i, value := range []int64{int64(s.requests), int64(s.remaining), reset} {
			b = appendHeader(b, names[i], value)
		}
		if r.over && s.over {
			b = appendHeader(b, "Retry-After", max(1, reset))
		}
	}
	if l.envoyConfig.Metadata {
		b = appendMetadata(b, w)
	}
	overall := rlsv3.RateLimitResponse_OK
	if r.over {
		overall = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return appendVarint(b, 1, uint64(overall))
}

// appendHeader appends a HeaderValue to add to the response.
func appendHeader(b []byte, name string, value int64) []byte {
	b, begin := beginMessage(b, 3)
	b = appendString(b, 1, name)
	b = appendString(b, 2, strconv.FormatInt(value, 10))
	return endMessage(b, begin)
}

// append appends a DescriptorStatus.
func (s *envoyStatus) append(b []byte) []byte {
	b, begin := beginMessage(b, 2)
	code := rlsv3.RateLimitResponse_OK
	if s.over {
		code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	b = appendVarint(b, 1, uint64(code))
	if s.limited {
		var limit int
		b, limit = beginMessage(b, 2)
		b = appendVarint(b, 1, uint64(s.requests))
		b = appendVarint(b, 2, uint64(s.unit))
		b = appendString(b, 3, s.name)
		if s.multiple > 1 {
			b = appendUint(b, 4, s.multiple)
		}
		b = endMessage(b, limit)
	}
	b = appendVarint(b, 3, uint64(s.remaining))
	if s.limited {
		b = appendDuration(b, 4, s.reset)
	}
	return endMessage(b, begin)
}

// appendUint appends a UInt32Value.
func appendUint(b []byte, number protowire.Number, v uint64) []byte {
	b, begin := beginMessage(b, number)
	b = appendVarint(b, 1, v)
	return endMessage(b, begin)
}

// envoyUnit is the largest unit that a limit's window is a multiple of, and which one. A
// month has 30 days and a year 365, as in Envoy's reference server, but for calendars.
// It is 0 if there is none.
func envoyUnit(l *algorithms.Limit) (unit rules.Unit, multiple uint64) {
	if l.Calendar != nil {
		name, _, _ := strings.Cut(l.Calendar.String(), "/")
		return rules.ParseUnit(name), 1
	}
	for u := rules.Second; u.Window() > 0; u++ {
		if l.Window%u.Window() == 0 && u.Window() > unit.Window() {
			unit, multiple = u, uint64(l.Window/u.Window())
		}
	}
	return unit, multiple
}
