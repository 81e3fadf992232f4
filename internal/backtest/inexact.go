package backtest

import "github.com/weirlimit/weir/rules"

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
