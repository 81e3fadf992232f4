package backtest

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// engine decides checks by one set of rules, as a node that owns all counters.
type engine struct {
	set      *rules.Set
	hasher   ring.Hasher
	counters *counters
	rules    []*ruleStats // by rank, nil for those that have not matched
	all      tally
	matches  []rules.Match
	steps    []step
	request  rules.Request
	names    namer

	described []rules.Match   // of the parts of a check in a domain with descriptors of Envoy; used again
	replaced  map[string]bool // names of limits that do not apply to that check

	none   algorithms.Long // of counters that are not there; used again
	checks int64           // that have been decided
}

// step is what one limit says of a check.
type step struct {
	slot     int32 // -1: there is no counter, and need be none
	limit    algorithms.Limit
	next     algorithms.State
	decision algorithms.Decision
	cost     int64
}

// counts reports whether the step changes its counter if no other step denies the check.
func (s *step) counts() bool { return s.decision.Allowed && s.cost != 0 }

// tally counts checks.
type tally struct {
	Allowed, Denied, Unlimited, NoRule, Refused int64
}

func newEngine(set *rules.Set) *engine {
	e := &engine{set: set, hasher: ring.NewHasher([ring.SecretSize]byte{}), rules: make([]*ruleStats, set.Len())}
	e.counters = newCounters(func(c *counter) { c.rule.ended(c) })
	return e
}

// verdict is the answer to a check.
type verdict int

const (
	allowed verdict = iota
	denied
	refused // an error of the call: no decision
)

// check is one request, or several descriptors that are decided together.
type check struct {
	domain string
	now    int64
	peek   bool
	parts  []part
	logged *loggedCheck // of a decision log
}

type part struct {
	attributes []rules.Attribute
	tokens     int64
	// logged are the limits of a decision log that the part was held against.
	logged []loggedLimit
}

// decide answers a check, and counts it unless it is denied.
func (e *engine) decide(c *check) verdict {
	e.counters.tidy(c.now) // not later: steps name slots
	e.steps, e.matches = e.steps[:0], e.matches[:0]
	e.checks++
	exempt := 0
	tree := e.set.Descriptors(c.domain)
	if tree != nil {
		e.describedBy(tree, c)
	}
	for i := range c.parts {
		p := &c.parts[i]
		first := len(e.matches)
		e.request.Domain, e.request.Attributes = c.domain, p.attributes
		if tree != nil {
			if m := e.described[i]; m.Rule != nil {
				e.matches = append(e.matches, m)
			}
		} else {
			e.matches = e.set.Match(e.hasher, &e.request, e.matches)
		}
		if len(e.matches) > first && e.matches[first].Limit < 0 {
			e.statsOf(e.matches[first].Rule).applies(e.checks)
			e.matches = e.matches[:first]
			exempt++
			continue
		}
		if !e.look(c, p, first) {
			e.all.Refused++
			return refused
		}
	}
	if tree != nil {
		e.enforceQuotas()
	}
	switch {
	case len(e.matches) > 0:
	case exempt > 0:
		e.all.Unlimited++
	default:
		e.all.NoRule++
	}
	return e.judge(c)
}

// look decides every limit of a part by itself, and changes none. It is false if a cost cannot be told.
func (e *engine) look(c *check, p *part, first int) bool {
	for i := first; i < len(e.matches); i++ {
		m := &e.matches[i]
		cost, err := m.Rule.Cost(&e.request, p.tokens)
		if err != nil {
			return false
		}
		now := c.now
		if p.logged != nil {
			now = useLogged(m, p.logged, now)
		}
		limit := m.Held()
		if l := c.logged; l != nil && l.impatient {
			limit = limit.WaitAtMost(l.wait)
		}
		e.steps = append(e.steps, step{limit: limit, cost: cost})
		e.peek(m.Key, &e.steps[len(e.steps)-1], now, first)
	}
	if !c.peek {
		e.describe(p, first)
	}
	return true
}

// useLogged takes from a decision log what only the node knew: the instant by the clock of the node that decided, and
// whether a percentage of keys has this one, which depends on the cluster's secret.
func useLogged(m *rules.Match, logged []loggedLimit, now int64) int64 {
	for i := range logged {
		l := &logged[i]
		if l.used || l.index != int64(m.Limit) || l.rule != m.Rule.ID {
			continue
		}
		l.used = true
		if m.Rule.Descriptor == nil {
			m.Shadow = !m.Rule.Enforces(l.lo)
		}
		if l.at > 0 {
			now = l.at
		}
		break
	}
	return now
}

// peek says what a limit decides. Steps before first are of other parts of the check.
func (e *engine) peek(key ring.Key, s *step, now int64, first int) {
	s.slot = e.counters.find(key)
	if s.limit.Algorithm.Long() {
		s.decision = e.longBefore(key, s.slot, first).Step(&s.limit, now, s.cost, false)
		return
	}
	s.next = algorithms.StepInto(&s.decision, &s.limit, e.stateBefore(key, s.slot, first), now, s.cost)
}

// stateBefore returns what a part finds in a counter: its state, with what parts before it take.
func (e *engine) stateBefore(key ring.Key, slot int32, first int) algorithms.State {
	for i := first - 1; i >= 0; i-- {
		if e.matches[i].Key == key && e.steps[i].counts() {
			return e.steps[i].next
		}
	}
	if slot < 0 {
		return algorithms.State{}
	}
	return e.counters.slots[slot].state
}

// longBefore is stateBefore for a counter that is a Long.
func (e *engine) longBefore(key ring.Key, slot int32, first int) *algorithms.Long {
	e.none = algorithms.Long{}
	long, own := &e.none, true
	if slot >= 0 {
		long, own = e.counters.slots[slot].long, false
	}
	for i := range first {
		if s := &e.steps[i]; e.matches[i].Key == key && s.counts() {
			if !own {
				long, own = long.Clone(), true
			}
			long.Step(&s.limit, s.decision.At, s.cost, true)
		}
	}
	return long
}

// describe makes sure that limits which are asked for tokens have a counter, and notes what is asked.
func (e *engine) describe(p *part, first int) {
	for i := first; i < len(e.matches); i++ {
		m, s := &e.matches[i], &e.steps[i]
		if s.cost <= 0 {
			continue
		}
		stats := e.statsOf(m.Rule)
		if s.slot < 0 {
			s.slot = e.counters.add(m.Key)
			k := &e.counters.slots[s.slot]
			k.rule, k.limit, k.cap, k.text = stats, int32(m.Limit), s.limit.Limit, e.names.subject(m, p)
			if s.limit.Algorithm.Long() {
				k.long = new(algorithms.Long)
			}
			stats.keys++
		}
		e.counters.slots[s.slot].ask(s.decision.At, s.limit.Length(), s.cost)
	}
}

// judge answers, keeps the steps unless one denies, and counts by rule.
func (e *engine) judge(c *check) verdict {
	v := allowed
	for i := range e.steps {
		if !e.steps[i].decision.Allowed && !e.matches[i].Shadow {
			v = denied
		}
	}
	for i := range e.steps {
		m, s := &e.matches[i], &e.steps[i]
		stats := e.rules[m.Rule.Rank()]
		if stats == nil {
			stats = e.statsOf(m.Rule)
		}
		stats.applies(e.checks)
		if !s.decision.Allowed {
			e.deny(stats, m, s)
		}
		if v == allowed && !c.peek && s.decision.Allowed && s.slot >= 0 {
			e.keep(s, c)
		}
	}
	if v == denied {
		e.all.Denied++
	} else {
		e.all.Allowed++
	}
	return v
}

// deny counts a denial by a limit: once per rule and check.
func (e *engine) deny(stats *ruleStats, m *rules.Match, s *step) {
	stats.limits[m.Limit].Denied++
	text := ""
	if s.slot >= 0 {
		k := &e.counters.slots[s.slot]
		text = k.text
		if !k.denied {
			k.denied = true
			stats.deniedKeys++
		}
	}
	if stats.counted == notCounted {
		stats.top.add(m.Key.Lo, text, 1)
	}
	switch { // of several sets of attributes the worst counts
	case m.Shadow && stats.counted == notCounted:
		stats.WouldDeny++
		stats.counted = countedAsShadow
	case !m.Shadow && stats.counted == countedAsShadow:
		stats.WouldDeny--
		fallthrough
	case !m.Shadow && stats.counted == notCounted:
		stats.Denied++
		stats.counted = countedAsDenied
	}
}

// keep counts what was allowed.
func (e *engine) keep(s *step, c *check) {
	k := &e.counters.slots[s.slot]
	at := s.decision.At
	switch {
	case s.limit.Algorithm.Long():
		s.decision = k.long.Step(&s.limit, at, s.cost, s.cost != 0)
	case s.cost != 0:
		k.state = s.next
	}
	if l := c.logged; l != nil && l.lent > 0 && l.lentFor > 0 && s.cost > 0 { // more tokens went to the caller
		more := s.cost / l.lentFor * l.lent
		if s.limit.Algorithm.Long() {
			s.decision = k.long.Step(&s.limit, at, more, true)
		} else {
			k.state = algorithms.StepInto(&s.decision, &s.limit, k.state, at, more)
		}
	}
	k.expires = max(k.expires, s.decision.ResetAt)
}

func (e *engine) statsOf(r *rules.Rule) *ruleStats {
	i := r.Rank()
	if e.rules[i] == nil {
		e.rules[i] = newRuleStats(r)
	}
	return e.rules[i]
}
