package envoy

import (
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	envoyrules "github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/shard"
)

// asked is what a descriptor of a request of Envoy asks. The zero value is one that
// nothing limits.
type asked struct {
	// kind says what decides it.
	kind askedKind
	// rule is that of its descriptor, nil if the limit came with the request.
	rule *rules.Rule
	key  ring.Key

	limit    algorithms.Limit // what the counter is held against
	requests uint32           // and what the limit is
	unit     envoyrules.Unit
	multiple uint64 // of the unit, 0 for 1

	hits     int64 // 0 or more
	negative bool  // they are given back
	tooMany  bool  // there were more hits than a limit can have room for: it is over

	used int64 // of the limit, after the answer

	nameEnd int // of what metrics call it, in work.names

	// Of those that metadata tells:

	entries []rules.Attribute
	d       descriptor
}

type askedKind uint8

const (
	byNothing    askedKind = iota
	byRules                // those that match; there may be several
	byDescriptor           // one limit
	byFreedom              // a descriptor that is unlimited
)

func (a *asked) cost() int64 {
	if a.negative {
		return -a.hits
	}
	return a.hits
}

// name is what the limit is called in answers.
func (a *asked) name() string {
	if a.rule == nil {
		return ""
	}
	return a.rule.Descriptor.Name
}

func (a *asked) shadow() bool { return a.rule != nil && a.rule.Descriptor.Shadow }

func (a *asked) quota() bool { return a.rule != nil && a.rule.Descriptor.Quota }

// match adds what the descriptor d, whose entries are w.Request, asks: by the rules
// at once, or by a descriptor as takeAsked will.
func (s *Service) match(w *work, d descriptor) {
	a := asked{hits: int64(d.hits), negative: d.negative, tooMany: d.tooMany}
	if d.hasHits && d.hits == 0 {
		s.warnOfLook()
	}
	if s.config.Metadata {
		a.entries, a.d = slices.Clone(w.Request.Attributes), d
	}
	s.checks.Note(&w.Work, a.cost())
	tree := w.descriptors
	switch {
	case d.unmatched:
	case d.hasLimit && w.Set.HasDomain(w.Request.Domain):
		a.kind, a.requests, a.unit, a.multiple = byDescriptor, d.requests, d.unit, d.multiple
		a.limit = s.config.Rules.Limit(d.requests, d.window())
		a.key = envoyrules.OverrideKey(s.checks.Hasher, w.Request.Domain, w.Request.Attributes, a.limit)
		w.names = appendOverrideName(w.names, w.Request.Domain, w.Request.Attributes)
	case tree == nil:
		a.kind = byRules
	default:
		s.matchDescriptor(w, &a, tree)
	}
	a.nameEnd = len(w.names)
	if a.kind == byRules {
		s.matchRules(w, &a)
	}
	w.asked = append(w.asked, a)
}

// matchRules adds what the rules that match w.Request ask, as an item.
func (s *Service) matchRules(w *work, a *asked) {
	known := w.InvalidCosts
	_ = s.checks.Match(&w.Work, a.cost()) // costs are saturated, so there is no error
	for range w.InvalidCosts - known {
		s.stats.excess("cost")
	}
	w.WaitAtMost(0)
	_, takes := w.Item(len(w.Items) - 1)
	for i := range takes {
		if s.config.Shadow || s.config.Quota {
			takes[i].Shadow = true
		}
		if a.tooMany {
			check.LeaveNoRoom(&takes[i])
		}
	}
}

// warnOfLook warns, the first time, that looks are not denied by debits that were too much.
func (s *Service) warnOfLook() {
	if s.config.CountDenied {
		return
	}
	s.looked.Do(func() {
		s.log.Warn("a request of Envoy only looks (hits_addend: 0); if it is debited when it is over, a debit that is more than remains does not count, and looks are never denied: use rls-count-denied")
	})
}

// matchDescriptor finds the descriptor of tree that w.Request leads to.
func (s *Service) matchDescriptor(w *work, a *asked, tree *rules.Descriptors) {
	a.rule, a.key = tree.Match(s.checks.Hasher, w.Request.Attributes)
	if a.rule == nil {
		return
	}
	for _, name := range a.rule.Descriptor.Replaces {
		if w.replaced == nil {
			w.replaced = make(map[string]bool)
		}
		w.replaced[name] = true
	}
	if a.rule.Unlimited {
		a.kind = byFreedom
		return
	}
	a.kind, a.limit = byDescriptor, a.rule.Limits[0]
	a.requests, a.unit = a.rule.Descriptor.Requests, a.rule.Descriptor.Unit
	w.names = tree.AppendName(w.names, a.rule, w.Request.Attributes)
}

func appendOverrideName(b []byte, domain string, entries []rules.Attribute) []byte {
	b = append(b, domain...)
	for _, e := range entries {
		b = append(append(b, '.'), e.Key...)
		if e.Value != "" {
			b = append(append(b, '_'), e.Value...)
		}
	}
	return b
}

// takeAsked makes takes of what descriptors ask, now that it is known which of them replace others. What
// rules decide has its takes already, and is in no domain with descriptors, but may come with limits of the
// request.
func (s *Service) takeAsked(w *work) {
	if w.descriptors == nil && !slices.ContainsFunc(w.asked, func(a asked) bool { return a.kind == byDescriptor }) {
		return
	}
	items, matches, takes := slices.Clone(w.Items), slices.Clone(w.Matches), slices.Clone(w.Takes)
	w.Items, w.Matches, w.Takes = w.Items[:0], w.Matches[:0], w.Takes[:0]
	begin := 0
	for i := range w.asked {
		a := &w.asked[i]
		switch {
		case a.kind == byRules:
			end := items[0].End
			w.Matches, w.Takes = append(w.Matches, matches[begin:end]...), append(w.Takes, takes[begin:end]...)
			w.Items = append(w.Items, check.Item{End: len(w.Takes), Exempt: items[0].Exempt})
			items, begin = items[1:], end
			continue
		case a.kind == byDescriptor && w.replaced[a.name()] && a.name() != "":
			*a = asked{hits: a.hits, negative: a.negative, nameEnd: a.nameEnd, entries: a.entries, d: a.d}
		case a.kind == byDescriptor:
			w.Matches = append(w.Matches, rules.Match{Rule: a.rule, Key: a.key})
			w.Takes = append(w.Takes, s.take(a))
		}
		w.Items = append(w.Items, check.Item{End: len(w.Takes)})
	}
}

// isShadow reports whether a does not deny the request, or not alone.
func (s *Service) isShadow(a *asked) bool {
	return a.shadow() || a.quota() || s.config.Shadow || s.config.Quota
}

// mostCounted are the most hits that are counted at once although they are over the limit, if that is
// lower. More of them would have no room in addition to those counted already, and not be counted at all.
const mostCounted = algorithms.MaxLimit / 2

// take returns the take of a descriptor's limit.
//
// To be counted when it is over, too, it is held against the highest limit there is. It is then a shadow
// also so that no tokens are lent from a limit that does not exist.
func (s *Service) take(a *asked) shard.Take {
	t := shard.Take{Key: a.key, Limit: a.limit, Cost: a.cost(), OnFailure: shard.FailLocal}
	t.Shadow = s.isShadow(a)
	switch {
	case s.config.CountDenied:
		t.Limit.Limit, t.Shadow, t.OnFailure = algorithms.MaxLimit, true, shard.FailOpen
		if int64(a.requests) < mostCounted {
			t.Cost = min(t.Cost, mostCounted)
		}
	case a.tooMany:
		check.LeaveNoRoom(&t)
		a.limit = t.Limit
	}
	return t
}
