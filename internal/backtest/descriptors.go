package backtest

import (
	"strings"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/rules/envoy"
)

// describedBy sets described to what the descriptors of a check lead to, as package api/envoy does: at most one rule for
// each, and none for those that another one replaces.
func (e *engine) describedBy(tree *rules.Descriptors, c *check) {
	e.described = e.described[:0]
	clear(e.replaced)
	for i := range c.parts {
		var m rules.Match
		if own := e.ownLimit(c, &c.parts[i]); own != nil {
			m = e.matchOwn(c, &c.parts[i], own)
		} else if m.Rule, m.Key = tree.Match(e.hasher, c.parts[i].attributes); m.Rule != nil {
			d := m.Rule.Descriptor
			m.Shadow = d.Shadow || d.Quota
			if m.Rule.Unlimited {
				m.Limit = -1
			}
			for _, name := range d.Replaces {
				if e.replaced == nil {
					e.replaced = make(map[string]bool)
				}
				e.replaced[name] = true
			}
		}
		e.described = append(e.described, m)
	}
	for i := range e.described {
		if m := &e.described[i]; m.Rule != nil && m.Limit >= 0 && m.Rule.Descriptor.Name != "" && e.replaced[m.Rule.Descriptor.Name] {
			*m = rules.Match{}
		}
	}
}

// ownLimit returns the limit that a descriptor has brought with it and that replaces all others; nil if there is none.
func (e *engine) ownLimit(c *check, p *part) *loggedLimit {
	if c.logged == nil || !c.logged.envoy || len(p.logged) != 1 || p.logged[0].rule != "" || !e.set.HasDomain(c.domain) {
		return nil
	}
	return &p.logged[0]
}

// OwnLimits is what results call the limits that requests of Envoy bring with them, in place of a rule.
const OwnLimits = "(limits of requests)"

// matchOwn returns the match of a limit that a descriptor has brought with it. Its rule stands for those of all requests in the domain.
func (e *engine) matchOwn(c *check, p *part, own *loggedLimit) rules.Match {
	stats := e.own[c.domain]
	if stats == nil {
		domain := strings.Clone(c.domain)
		stats = newRuleStats(&rules.Rule{
			Domain: domain, ID: OwnLimits, Limits: make([]algorithms.Limit, 1), OnFailure: rules.FailLocal, Descriptor: new(envoy.Descriptor),
		})
		e.own[domain] = stats
	}
	return rules.Match{Rule: stats.rule, Key: envoy.OverrideKey(e.hasher, c.domain, p.attributes, own.limit)}
}

// mostCounted are the most hits that a node counts at once with the option rls-count-denied, if a limit is lower.
const mostCounted = algorithms.MaxLimit / 2
