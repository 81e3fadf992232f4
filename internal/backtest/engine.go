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

	own       map[string]*ruleStats // of limits that requests of Envoy bring with them, by domain
	parts     []partState           // of the check at hand
	inexact   inexact               // why the decision of the last check may be another than the node's
	described []rules.Match         // of the parts of a check in a domain with descriptors of Envoy; used again
	replaced  map[string]bool       // names of limits that do not apply to that check

	none   algorithms.Long // of counters that are not there; used again
	checks int64           // that have been decided
}

// step is what one limit says of a check.
type step struct {
	key       ring.Key // of the counter
	slot      int32    // -1: there is no counter, and need be none
	limit     algorithms.Limit
	next      algorithms.State
	decision  algorithms.Decision
	cost      int64
	part      int       // of the check
	by        decidedBy // what has decided it by a decision log
	undecided bool      // no node has answered in time
	leases    bool      // the owner lent tokens with the answer
	mild      bool      // it never denies
	raw       bool      // it does not keep the rest of the check from being counted
	counted   bool      // it counts also what is over most, its tokens
	most      int64
	over      bool // it would deny, by itself
}

// partState is what is known of a part of a check.
type partState struct {
	over  bool // of its limit
	quota bool // it denies only if all like it do
}

// counts reports whether the step changes its counter if no other step denies the check.
func (s *step) counts() bool { return s.decision.Allowed && s.cost != 0 }

// tally counts checks.
type tally struct {
	Allowed, Denied, Unlimited, NoRule, Refused int64
}

func newEngine(set *rules.Set) *engine {
	e := &engine{set: set, hasher: ring.NewHasher([ring.SecretSize]byte{}), rules: make([]*ruleStats, set.Len()), own: make(map[string]*ruleStats)}
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
	e.steps, e.matches, e.parts = e.steps[:0], e.matches[:0], e.parts[:0]
	e.checks++
	exempt := 0
	tree := e.treeOf(c)
	if tree != nil {
		e.describedBy(tree, c)
	}
	for i := range c.parts {
		p := &c.parts[i]
		first := len(e.matches)
		unlimited := e.match(c, i, tree != nil)
		if unlimited != nil {
			e.statsOf(unlimited).applies(e.checks)
			exempt++
		}
		e.parts = append(e.parts, partState{quota: unlimited == nil && e.isQuota(c, first)})
		if !e.look(c, p, first) {
			e.all.Refused++
			return refused
		}
	}
	if c.isEnvoys() {
		e.conclude(c)
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

// isEnvoys reports whether the check is a call of Envoy.
func (c *check) isEnvoys() bool { return c.logged != nil && c.logged.envoy }

// treeOf returns the descriptors that a check is held against, nil if that is none: they are for calls of Envoy only.
func (e *engine) treeOf(c *check) *rules.Descriptors {
	if !c.isEnvoys() {
		return nil
	}
	return e.set.Descriptors(c.domain)
}

// match adds the limits that apply to a part of a check. It returns the rule that exempts it from all, or nil.
func (e *engine) match(c *check, part int, described bool) *rules.Rule {
	p, first := &c.parts[part], len(e.matches)
	e.request.Domain, e.request.Attributes = c.domain, p.attributes
	if described {
		if m := e.described[part]; m.Rule != nil {
			e.matches = append(e.matches, m)
		}
	} else if own := e.ownLimit(c, p); own != nil {
		e.matches = append(e.matches, e.matchOwn(c, p, own))
	} else {
		e.matches = e.set.Match(e.hasher, &e.request, e.matches)
	}
	if len(e.matches) > first && e.matches[first].Limit < 0 {
		exempts := e.matches[first].Rule
		e.matches = e.matches[:first]
		return exempts
	}
	return nil
}

// look decides every limit of a part by itself, and changes none. It is false if a cost cannot be told.
func (e *engine) look(c *check, p *part, first int) bool {
	part := len(e.parts) - 1
	for i := first; i < len(e.matches); i++ {
		m := &e.matches[i]
		e.steps = append(e.steps, step{part: part, slot: -1, limit: m.Held()})
		s := &e.steps[i]
		if !e.costOf(c, p, m, s) {
			return false
		}
		key, now := m.Key, c.now
		if c.logged == nil {
			s.mild, s.raw = m.Shadow, m.Shadow
		} else {
			key, now = e.asLogged(c, p, m, s, useLogged(m, p.logged))
		}
		if s.by != byNothing {
			e.peek(key, s, now, first)
		}
		if s.finish(); s.over && !s.mild {
			e.parts[part].over = true
		}
	}
	if !c.peek {
		e.describe(p, first)
	}
	return true
}

// costOf sets what a part costs of a limit. It is false if that cannot be told, which is an error of the call, except for Envoy.
func (e *engine) costOf(c *check, p *part, m *rules.Match, s *step) bool {
	if m.Rule.Descriptor != nil {
		s.cost = p.tokens
		return p.tokens >= -algorithms.MaxCost && p.tokens <= algorithms.MaxCost
	}
	var err error
	if s.cost, err = m.Rule.Cost(&e.request, p.tokens); err == nil || !c.isEnvoys() {
		return err == nil
	}
	if s.cost = 0; p.tokens > 0 {
		s.cost = algorithms.MaxCost
	}
	return true
}

// peek says what a limit decides. Steps before first are of other parts of the check.
func (e *engine) peek(key ring.Key, s *step, now int64, first int) {
	if s.key, s.slot = key, e.counters.find(key); s.slot >= 0 {
		if k := &e.counters.slots[s.slot]; k.doubt != 0 && now >= k.expires+s.limit.Length() {
			k.doubt = 0
		}
	}
	if s.limit.Algorithm.Long() {
		s.decision = e.longBefore(key, s.slot, first).Step(&s.limit, now, s.cost, false)
		return
	}
	s.next = algorithms.StepInto(&s.decision, &s.limit, e.stateBefore(key, s.slot, first), now, s.cost)
}

// stateBefore returns what a part finds in a counter: its state, with what parts before it take.
func (e *engine) stateBefore(key ring.Key, slot int32, first int) algorithms.State {
	for i := first - 1; i >= 0; i-- {
		if e.steps[i].key == key && e.steps[i].counts() {
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
		if s := &e.steps[i]; s.key == key && s.counts() {
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
		if s.undecided && p.tokens > 0 {
			e.doubtOwners(p, m, s)
		}
		if s.cost <= 0 {
			continue
		}
		if s.slot < 0 {
			s.slot = e.newCounter(p, m, s, s.key)
		}
		e.counters.slots[s.slot].ask(s.decision.At, s.limit.Length(), s.cost)
	}
}

// newCounter returns the slot of a new counter of that key.
func (e *engine) newCounter(p *part, m *rules.Match, s *step, key ring.Key) int32 {
	stats, slot := e.statsOf(m.Rule), e.counters.add(key)
	k := &e.counters.slots[slot]
	k.rule, k.limit, k.cap, k.text = stats, int32(m.Limit), s.tokens(), e.names.subject(m, p)
	if s.limit.Algorithm.Long() {
		k.long = new(algorithms.Long)
	}
	stats.keys++
	return slot
}

// judge answers, keeps the steps unless one denies, and counts by rule.
func (e *engine) judge(c *check) verdict {
	v := allowed
	counts := true
	for i := range e.steps {
		s := &e.steps[i]
		if s.over && !e.matches[i].Shadow {
			v = denied
		}
		counts = counts && (s.decision.Allowed || s.raw)
	}
	counts = counts && !c.peek && (v == allowed || c.logged != nil && c.logged.counts)
	for i := range e.steps {
		m, s := &e.matches[i], &e.steps[i]
		stats := e.statsOf(m.Rule)
		stats.applies(e.checks)
		if s.over {
			e.deny(stats, m, s)
		}
		if counts && s.decision.Allowed && s.slot >= 0 {
			e.keep(s, c)
		}
	}
	if c.logged != nil {
		e.doubt(c.logged, v)
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
	if stats.counted == notCounted && s.slot >= 0 {
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
	if r.ID == OwnLimits && r.Descriptor != nil {
		return e.own[r.Domain]
	}
	i := r.Rank()
	if e.rules[i] == nil {
		e.rules[i] = newRuleStats(r)
	}
	return e.rules[i]
}
