package api

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/algorithms"
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
func (w *work) answer(i int, verdicts *verdictCounts) *weirv1.RateLimitResponse {
	v := w.judge(i)
	verdicts.add(v)
	return w.render(i, v, &w.reply)
}

// render fills into and returns its response.
func (w *work) render(i int, v verdict, into *answer) *weirv1.RateLimitResponse {
	resp := &into.response
	*resp = weirv1.RateLimitResponse{Limits: resp.Limits[:0]}
	resp.Allowed, resp.Source = v.allowed, wireSource[v.source]
	if v.source == byUnlimited {
		resp.RuleId = w.items[i].exempt.ID
	}
	if v.by < 0 {
		return resp
	}
	matches, takes := w.item(i)
	m, t := &matches[v.by], &takes[v.by]
	nominal := &m.Rule.Limits[m.Limit]
	resp.RuleId = m.Rule.ID
	resp.Limit = uint32(nominal.Limit)
	if nominal.Calendar != nil {
		resp.Calendar = proto.String(nominal.Calendar.String())
	} else {
		resp.Window = setDuration(&into.window, nominal.Window)
	}
	if !v.allowed {
		resp.DenialReason = denialReason(t).Enum()
	}
	if answered(t) {
		d := &t.Decision
		resp.RemainingTokens = remaining(m, d)
		resp.ResetTime = ceilSeconds(d.ResetAt)
		resp.ResetAfter = setDuration(&into.resetAfter, d.ResetAt-d.At)
		if !v.allowed && d.RetryAt != algorithms.Never {
			resp.RetryAfter = setDuration(&into.retryAfter, d.RetryAt-d.At)
			resp.RetryAfterSeconds = uint32(ceilSeconds(d.RetryAt - d.At))
		}
	}
	if loan := w.groups[i].Loan; loan.Tokens > 0 {
		into.lease = weirv1.Lease{
			Tokens: loan.Tokens, ValidFor: setDuration(&into.validFor, loan.Until-loan.At), DebitedAt: loan.At,
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
		if t.Shadow && answered(t) && !t.Decision.Allowed {
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
		Source:    wireSource[sourceOf(t)],
	}
	if nominal.Calendar != nil {
		s.Calendar = nominal.Calendar.String()
	} else {
		s.Window = setDuration(&into.window, nominal.Window)
	}
	if !answered(t) {
		s.Allowed = s.GetSource() == weirv1.Source_SOURCE_FAIL_OPEN
		return s
	}
	d := &t.Decision
	s.RemainingTokens = remaining(m, d)
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
	if len(m.Rule.Per) == 0 {
		return nil
	}
	return m.Rule.Per[m.Per]
}

// denialReason says why t denies.
func denialReason(t *shard.Take) weirv1.DenialReason {
	switch capacity := t.Limit.Capacity(); {
	case !answered(t):
		return weirv1.DenialReason_DENIAL_REASON_UNANSWERED
	case capacity == 0:
		return weirv1.DenialReason_DENIAL_REASON_BLOCKED
	case t.Cost > capacity:
		return weirv1.DenialReason_DENIAL_REASON_COST_ABOVE_LIMIT
	}
	return weirv1.DenialReason_DENIAL_REASON_LIMIT_REACHED
}

// answered reports whether somebody has looked at the counter.
func answered(t *shard.Take) bool {
	switch t.Source {
	case shard.Owner, shard.Local, shard.Lent, shard.Standby, shard.Provisional:
		return true
	}
	return false
}

// remaining is what is left of the limit itself, without what a soft or elastic mode
// lets through above it.
func remaining(m *rules.Match, d *algorithms.Decision) uint32 {
	return uint32(max(0, d.Remaining-m.Above))
}

// over reports whether a take had room only above its limit.
func over(m *rules.Match, t *shard.Take) bool {
	return answered(t) && t.Decision.Allowed && t.Cost > 0 && t.Decision.Remaining < m.Above
}

var wireSource = [sources]weirv1.Source{
	byOwner:      weirv1.Source_SOURCE_OWNER,
	byNoRule:     weirv1.Source_SOURCE_NO_RULE,
	byFailOpen:   weirv1.Source_SOURCE_FAIL_OPEN,
	byUnlimited:  weirv1.Source_SOURCE_UNLIMITED,
	byLocal:      weirv1.Source_SOURCE_LOCAL,
	byFailClosed: weirv1.Source_SOURCE_FAIL_CLOSED,
	byLent:       weirv1.Source_SOURCE_LENT,
	byStandby:    weirv1.Source_SOURCE_STANDBY,
	byCopy:       weirv1.Source_SOURCE_PROVISIONAL,
}
