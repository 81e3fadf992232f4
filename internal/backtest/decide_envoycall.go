package backtest

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
)

// countDenied has a step count whether or not there is room, as a node does with the option rls-count-denied. Finish says then
// whether the limit, which has these tokens, is exceeded.
func (s *step) countDenied(tokens int64) {
	if s.limit.Limit = algorithms.MaxLimit; tokens < mostCounted {
		s.cost = min(s.cost, mostCounted)
	}
	s.most, s.counted = tokens, true
}

// finish sets whether the step is over its limit, once the counter has decided.
func (s *step) finish() {
	s.over = !s.decision.Allowed
	if s.counted {
		s.over = s.cost >= 0 && (s.over || s.limit.Limit-s.decision.Remaining > s.most)
	}
}

// tokensOf returns how many tokens a limit of Envoy has, by the call that has brought it or by the rule.
func tokensOf(m *rules.Match, own *loggedLimit) int64 {
	if own == nil {
		return int64(m.Rule.Descriptor.Requests)
	}
	return own.nominal
}

// isQuota reports whether a part, whose limits begin at first, denies a call of Envoy only if all like it do.
func (e *engine) isQuota(c *check, first int) bool {
	if !c.isEnvoys() {
		return false
	}
	return c.logged.quota || len(e.matches) > first && e.matches[first].Rule.Descriptor != nil && e.matches[first].Rule.Descriptor.Quota
}

// conclude makes shadows of the limits that do not deny a call of Envoy as a whole: descriptors with quota deny it only if all of them
// are over.
func (e *engine) conclude(c *check) {
	l := c.logged
	quotas, over := 0, 0
	for i := range e.parts {
		p := &e.parts[i]
		quotas, over = quotas+b2i(p.quota), over+b2i(p.quota && p.over)
	}
	lenient := quotas != over // not all are over
	for i := range e.steps {
		m, s := &e.matches[i], &e.steps[i]
		m.Shadow = s.mild || l.shadow || lenient && e.parts[s.part].quota
	}
}
