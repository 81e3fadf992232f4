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

// inexact says why a check of a decision log may be decided in another way than the node has: bits by reason.
type inexact uint8

const (
	afterProvisional inexact = 1 << iota // a standby has decided, by a copy that may have lacked something
	afterLent                            // tokens that the owner lent to a node were counted before they were used
	afterUndecided                       // the owner may have counted what it did not answer in time
	afterTokenLease                      // the same of tokens that were lent to clients, or were given back by them
	afterReturn                          // Envoy's API has given back what it had counted
	garbledValue                         // values that are not UTF-8 are not in the log
)

// inexactNames are what results call the reasons. Of several the first one counts.
var inexactNames = []struct {
	why  inexact
	name string
}{
	{afterProvisional, "provisional"}, {afterLent, "lent"}, {afterUndecided, "undecided"}, {afterTokenLease, "token_lease"}, {afterReturn, "returned"}, {garbledValue, "not_utf8"},
}

// doubt sets why the decision of a check may be another than the node's, by what is known of its counters, and has them remember it.
func (e *engine) doubt(l *loggedCheck, v verdict) {
	var all inexact
	if l.lent > 0 || l.lentAt > 0 {
		all |= afterTokenLease
	}
	if l.returned {
		all |= afterReturn
	}
	if l.garbled {
		all |= garbledValue
	}
	always := all
	for i := range e.steps {
		s := &e.steps[i]
		all |= s.doubt()
		if s.slot >= 0 {
			all |= e.counters.slots[s.slot].doubt
		}
	}
	e.inexact = all
	differs := l.allowed != (v == allowed)
	for i := range e.steps {
		s := &e.steps[i]
		if s.slot < 0 {
			continue
		}
		k := &e.counters.slots[s.slot]
		k.doubt |= always | s.doubt()
		if differs { // it counts, or does not, in the others, too
			k.doubt |= all
		}
	}
}

// doubtOwners notes of the owner's counter that the owner may have counted what a failure policy has decided.
func (e *engine) doubtOwners(p *part, m *rules.Match, s *step) {
	slot := e.counters.find(m.Key)
	if slot < 0 {
		slot = e.newCounter(p, m, s, m.Key)
	}
	k := &e.counters.slots[slot]
	k.doubt |= afterUndecided
	k.expires = max(k.expires, e.counters.now+s.limit.Length())
}

// doubt is what the log says of a step alone.
func (s *step) doubt() (why inexact) {
	if s.by == byProvisional {
		why |= afterProvisional
	}
	if s.by == byLent || s.leases {
		why |= afterLent
	}
	return why
}
