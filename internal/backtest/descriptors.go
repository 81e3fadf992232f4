package backtest

import "github.com/weirlimit/weir/rules"

// describedBy sets described to what the descriptors of a check lead to, as package api/envoy does: at most one rule for
// each, and none for those that another one replaces.
func (e *engine) describedBy(tree *rules.Descriptors, c *check) {
	e.described = e.described[:0]
	clear(e.replaced)
	for i := range c.parts {
		var m rules.Match
		if m.Rule, m.Key = tree.Match(e.hasher, c.parts[i].attributes); m.Rule != nil {
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

// enforceQuotas has descriptors with quota deny a check if all of them do.
func (e *engine) enforceQuotas() {
	quotas, over := 0, 0
	for i := range e.matches {
		if d := e.matches[i].Rule.Descriptor; d.Quota {
			quotas++
			over += b2i(!e.steps[i].decision.Allowed && !d.Shadow)
		}
	}
	for i := range e.matches {
		if quotas > 0 && quotas == over && e.matches[i].Rule.Descriptor.Quota {
			e.matches[i].Shadow = false
		}
	}
}
