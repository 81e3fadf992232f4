package api

import (
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
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
	unit     rules.Unit
	multiple uint64 // of the unit, 0 for 1

	hits     int64 // 0 or more
	negative bool  // they are given back

	used int64 // of the limit, after the answer

	nameEnd int // of what metrics call it, in envoyWork.names

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

// matchEnvoy adds what the descriptor d, whose entries are w.request, asks: by the rules
// at once, or by a descriptor as takeAsked will.
func (l *Limiter) matchEnvoy(w *work, d descriptor) error {
	a := asked{hits: int64(d.hits), negative: d.negative}
	if l.envoyConfig.Metadata {
		a.entries, a.d = slices.Clone(w.request.Attributes), d
	}
	tree := w.envoy.descriptors
	switch {
	case d.hasLimit && w.set.HasDomain(w.request.Domain):
		a.kind, a.requests, a.unit, a.multiple = byDescriptor, d.requests, d.unit, d.multiple
		a.limit = l.envoyConfig.Lyft.Limit(d.requests, d.window())
		a.key = rules.OverrideKey(l.hasher, w.request.Domain, w.request.Attributes, a.limit)
		w.envoy.names = appendOverrideName(w.envoy.names, w.request.Domain, w.request.Attributes)
	case tree == nil:
		a.kind = byRules
	default:
		l.matchDescriptor(w, &a, tree)
	}
	a.nameEnd = len(w.envoy.names)
	if a.kind == byRules {
		if err := l.match(w, a.cost()); err != nil {
			return err
		}
		w.waitAtMost(0)
		if l.envoyConfig.Shadow || l.envoyConfig.Quota {
			_, takes := w.item(len(w.items) - 1)
			for i := range takes {
				takes[i].Shadow = true
			}
		}
	}
	w.envoy.asked = append(w.envoy.asked, a)
	return nil
}

// matchDescriptor finds the descriptor of tree that w.request leads to.
func (l *Limiter) matchDescriptor(w *work, a *asked, tree *rules.Descriptors) {
	a.rule, a.key = tree.Match(l.hasher, w.request.Attributes)
	if a.rule == nil {
		return
	}
	for _, name := range a.rule.Descriptor.Replaces {
		if w.envoy.replaced == nil {
			w.envoy.replaced = make(map[string]bool)
		}
		w.envoy.replaced[name] = true
	}
	if a.rule.Unlimited {
		a.kind = byFreedom
		return
	}
	a.kind, a.limit = byDescriptor, a.rule.Limits[0]
	a.requests, a.unit = a.rule.Descriptor.Requests, a.rule.Descriptor.Unit
	w.envoy.names = tree.AppendName(w.envoy.names, a.rule, w.request.Attributes)
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

// takeAsked makes takes of what descriptors ask, now that it is known which of them
// replace others. What rules decide has its takes already, and stands in no domain with
// descriptors, but maybe beside limits that came with the request.
func (l *Limiter) takeAsked(w *work) {
	if w.envoy.descriptors == nil && !slices.ContainsFunc(w.envoy.asked, func(a asked) bool { return a.kind == byDescriptor }) {
		return
	}
	items, matches, takes := slices.Clone(w.items), slices.Clone(w.matches), slices.Clone(w.takes)
	w.items, w.matches, w.takes = w.items[:0], w.matches[:0], w.takes[:0]
	begin := 0
	for i := range w.envoy.asked {
		a := &w.envoy.asked[i]
		switch {
		case a.kind == byRules:
			end := items[0].end
			w.matches, w.takes = append(w.matches, matches[begin:end]...), append(w.takes, takes[begin:end]...)
			w.items = append(w.items, item{end: len(w.takes), exempt: items[0].exempt})
			items, begin = items[1:], end
			continue
		case a.kind == byDescriptor && w.envoy.replaced[a.name()] && a.name() != "":
			*a = asked{rule: nil, hits: a.hits, negative: a.negative, nameEnd: a.nameEnd, entries: a.entries, d: a.d}
		case a.kind == byDescriptor:
			w.matches = append(w.matches, rules.Match{Rule: a.rule, Key: a.key})
			w.takes = append(w.takes, l.take(a))
		}
		w.items = append(w.items, item{end: len(w.takes)})
	}
}

// isShadow reports whether a does not deny the request, or not alone.
func (l *Limiter) isShadow(a *asked) bool {
	return a.shadow() || a.quota() || l.envoyConfig.Shadow || l.envoyConfig.Quota
}

// take returns the take of a descriptor's limit.
//
// To be counted when it is over, too, it is held against the highest limit there is. It
// is then a shadow also so that nobody is lent of what nobody has.
func (l *Limiter) take(a *asked) shard.Take {
	t := shard.Take{Key: a.key, Limit: a.limit, Cost: a.cost(), OnFailure: shard.FailLocal}
	t.Shadow = l.isShadow(a)
	if l.envoyConfig.CountDenied {
		t.Limit.Limit, t.Shadow, t.OnFailure = algorithms.MaxLimit, true, shard.FailOpen
	}
	return t
}
