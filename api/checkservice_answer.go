package api

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// answer is a response and what it may point to.
type answer struct {
	response weirv1.RateLimitResponse
	durations
	limits []limitAnswer

	lease    weirv1.Lease
	validFor durationpb.Duration
}

// limitAnswer is a status and what it may point to.
type limitAnswer struct {
	status weirv1.LimitStatus
	durations
}

type durations struct {
	window, resetAfter, retryAfter, delay durationpb.Duration
}

// answer returns the answer to the i-th item, and counts its verdict. The next call
// overwrites it.
func (w *work) answer(i int, verdicts *check.VerdictCounts) *weirv1.RateLimitResponse {
	v := w.Judge(i)
	verdicts.Add(v)
	return w.render(i, v, &w.reply)
}

// render fills into and returns its response.
func (w *work) render(i int, v check.Verdict, into *answer) *weirv1.RateLimitResponse {
	resp := &into.response
	*resp = weirv1.RateLimitResponse{Limits: resp.Limits[:0]}
	resp.Allowed, resp.Source = v.Allowed, wireSource[v.Source]
	if v.Source == check.ByUnlimited {
		resp.RuleId = w.Items[i].Exempt.ID
	}
	if v.By < 0 {
		return resp
	}
	matches, takes := w.Item(i)
	m, t := &matches[v.By], &takes[v.By]
	nominal := &m.Rule.Limits[m.Limit]
	resp.RuleId = m.Rule.ID
	resp.Limit = uint32(nominal.Limit)
	if nominal.Calendar != nil {
		resp.Calendar = proto.String(nominal.Calendar.String())
	} else {
		resp.Window = setDuration(&into.window, nominal.Window)
	}
	if !v.Allowed {
		resp.DenialReason = denialReason(t).Enum()
	}
	if check.Answered(t) {
		d := &t.Decision
		resp.RemainingTokens = check.Remaining(m, d)
		resp.ResetTime = check.CeilSeconds(d.ResetAt)
		resp.ResetAfter = setDuration(&into.resetAfter, d.ResetAt-d.At)
		if !v.Allowed && d.RetryAt != algorithms.Never {
			resp.RetryAfter = setDuration(&into.retryAfter, d.RetryAt-d.At)
			resp.RetryAfterSeconds = uint32(check.CeilSeconds(d.RetryAt - d.At))
		}
	}
	if lease := w.Groups[i].TokenLease; lease.Tokens > 0 {
		into.lease = weirv1.Lease{
			Tokens: lease.Tokens, ValidFor: setDuration(&into.validFor, lease.Until-lease.At), DebitedAt: lease.At,
		}
		resp.Lease = &into.lease
	}
	renderSpecial(into, matches, takes)
	return resp
}

// setDuration makes d as many nanoseconds.
func setDuration(d *durationpb.Duration, ns int64) *durationpb.Duration {
	d.Seconds, d.Nanos = ns/int64(time.Second), int32(ns%int64(time.Second))
	return d
}

// renderSpecial adds what most answers have nothing of.
func renderSpecial(into *answer, matches []rules.Match, takes []shard.Take) {
	resp := &into.response
	var delay int64
	for i := range takes {
		t := &takes[i]
		if t.Shadow && check.Answered(t) && !t.Decision.Allowed {
			resp.WouldDeny = proto.Bool(true)
		}
		if resp.GetAllowed() {
			delay = max(delay, t.Decision.Delay)
			if over(&matches[i], t) {
				resp.OverLimit = proto.Bool(true)
			}
		}
	}
	if delay > 0 {
		resp.Delay = setDuration(&into.delay, delay)
	}
	if len(takes) > 1 {
		into.limits = slices.Grow(into.limits[:0], len(takes))[:len(takes)]
		for i := range takes {
			resp.Limits = append(resp.Limits, into.limits[i].fill(&matches[i], &takes[i]))
		}
	}
}

// limitStatus tells all there is to tell of one limit.
func limitStatus(m *rules.Match, t *shard.Take) *weirv1.LimitStatus {
	return new(limitAnswer).fill(m, t)
}

// fill fills into and returns its status.
func (into *limitAnswer) fill(m *rules.Match, t *shard.Take) *weirv1.LimitStatus {
	nominal := &m.Rule.Limits[m.Limit]
	s := &into.status
	*s = weirv1.LimitStatus{
		RuleId:    m.Rule.ID,
		Limit:     uint32(nominal.Limit),
		Algorithm: nominal.Algorithm.String(),
		Per:       attributesOf(m),
		Shadow:    m.Shadow,
		Allowed:   t.Decision.Allowed,
		Source:    wireSource[check.SourceOf(t)],
	}
	if nominal.Calendar != nil {
		s.Calendar = nominal.Calendar.String()
	} else {
		s.Window = setDuration(&into.window, nominal.Window)
	}
	if !check.Answered(t) {
		s.Allowed = s.GetSource() == weirv1.Source_SOURCE_FAIL_OPEN
		return s
	}
	d := &t.Decision
	s.RemainingTokens = check.Remaining(m, d)
	s.ResetAfter = setDuration(&into.resetAfter, d.ResetAt-d.At)
	s.OverLimit = over(m, t)
	if !d.Allowed && d.RetryAt != algorithms.Never {
		s.RetryAfter = setDuration(&into.retryAfter, d.RetryAt-d.At)
	}
	if d.Delay > 0 {
		s.Delay = setDuration(&into.delay, d.Delay)
	}
	return s
}

// attributesOf returns the attributes whose values choose m's counter.
func attributesOf(m *rules.Match) []string {
	switch {
	case m.Rule.Descriptor != nil:
		return m.Rule.Descriptor.CountsBy()
	case len(m.Rule.Per) == 0:
		return nil
	}
	return m.Rule.Per[m.Per]
}

// denialReason says why t denies.
func denialReason(t *shard.Take) weirv1.DenialReason {
	switch capacity := t.Limit.Capacity(); {
	case !check.Answered(t):
		return weirv1.DenialReason_DENIAL_REASON_UNDECIDED
	case capacity == 0:
		return weirv1.DenialReason_DENIAL_REASON_BLOCKED
	case t.Cost > capacity:
		return weirv1.DenialReason_DENIAL_REASON_COST_ABOVE_LIMIT
	}
	return weirv1.DenialReason_DENIAL_REASON_LIMIT_REACHED
}

// over reports whether a take had room only above its limit.
func over(m *rules.Match, t *shard.Take) bool {
	return check.Answered(t) && t.Decision.Allowed && t.Cost > 0 && t.Decision.Remaining < check.Above(m)
}

var wireSource = [...]weirv1.Source{
	check.ByOwner:       weirv1.Source_SOURCE_OWNER,
	check.ByNoRule:      weirv1.Source_SOURCE_NO_RULE,
	check.ByFailOpen:    weirv1.Source_SOURCE_FAIL_OPEN,
	check.ByUnlimited:   weirv1.Source_SOURCE_UNLIMITED,
	check.ByLocal:       weirv1.Source_SOURCE_LOCAL,
	check.ByFailClosed:  weirv1.Source_SOURCE_FAIL_CLOSED,
	check.ByLent:        weirv1.Source_SOURCE_LENT,
	check.ByRelay:       weirv1.Source_SOURCE_RELAYED,
	check.ByProvisional: weirv1.Source_SOURCE_PROVISIONAL,
}
