package backtest

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// useLogged returns what a decision log has of a limit, nil if that is nothing. It takes from there whether a percentage of keys has this
// one, which depends on the cluster's secret.
func useLogged(m *rules.Match, logged []loggedLimit) *loggedLimit {
	for i := range logged {
		l := &logged[i]
		own := l.rule == "" && m.Rule.ID == OwnLimits
		if l.used || l.index != int64(m.Limit) || l.rule != m.Rule.ID && !own {
			continue
		}
		l.used = true
		if m.Rule.Descriptor == nil {
			m.Shadow = !m.Rule.Enforces(l.lo)
		}
		return l
	}
	return nil
}

// asLogged has a step decide as the node has by its decision log, as far as that says so: what decided it, with which options, and
// when by that clock. It returns the counter and the instant.
func (e *engine) asLogged(c *check, p *part, m *rules.Match, s *step, logged *loggedLimit) (key ring.Key, now int64) {
	l := c.logged
	key, now, s.mild, s.raw = m.Key, c.now, m.Shadow, m.Shadow
	if logged != nil && m.Rule.ID == OwnLimits {
		s.limit = logged.limit
	}
	if l.impatient {
		s.limit = s.limit.WaitAtMost(l.wait)
	}
	if l.envoy {
		s.asEnvoys(l, p, m, logged)
	}
	if logged == nil {
		return key, now
	}
	if s.by, s.leases = logged.by, logged.leases; logged.at > 0 {
		now = logged.at
	}
	if s.by == byNothing {
		s.decision.Allowed, s.cost = true, 0
	}
	if s.by == byPolicy {
		s.undecided = true
		key = e.byPolicy(l, m, s, logged.shares)
	}
	return key, now
}

// asEnvoys has a step count as a node with the options of that line does for Envoy.
func (s *step) asEnvoys(l *loggedCheck, p *part, m *rules.Match, logged *loggedLimit) {
	d := m.Rule.Descriptor
	switch {
	case d != nil && l.counts:
		s.countDenied(tokensOf(m, ownOf(m, logged)))
	case p.tokens >= algorithms.MaxCost || s.cost >= algorithms.MaxCost: // it stands for more than any limit has room for
		s.limit.Limit, s.limit.Burst = min(s.limit.Limit, algorithms.MaxCost-1), min(s.limit.Burst, algorithms.MaxCost-1)
	}
	if d != nil {
		s.mild = d.Shadow
	}
	s.raw = s.raw || l.shadow || l.quota || s.counted
}

// ownOf returns what the log has of a limit that a descriptor has brought with it, nil if the limit is of rules.
func ownOf(m *rules.Match, logged *loggedLimit) *loggedLimit {
	if m.Rule.ID != OwnLimits {
		return nil
	}
	return logged
}

// byPolicy has a step decide by the failure policy of its rule, as no node has decided. It returns the counter: with the policy local
// that of the asked node, which has a share of the limit.
func (e *engine) byPolicy(l *loggedCheck, m *rules.Match, s *step, shares int64) ring.Key {
	if m.Rule.OnFailure == rules.FailLocal {
		s.limit = s.limit.Share(max(1, shares))
		return m.Key.With(e.hasher.Key([]byte(l.node)).Hi)
	}
	s.by, s.decision.Allowed, s.cost = byNothing, m.Rule.OnFailure == rules.FailAllow, 0
	return m.Key
}

// tokens is what the limit of a step has.
func (s *step) tokens() int64 {
	if s.counted {
		return s.most
	}
	return s.limit.Limit
}
