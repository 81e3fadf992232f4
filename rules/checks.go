package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// This file has what is to be said of a rule whose fields are good one by one.

// matchable refuses a rule, or a set of its attributes, that no request can match.
func (d *decoder) matchable(n *yaml.Node, at path, r *Rule) {
	for i, set := range r.Per {
		field := at.key("per")
		if len(r.Per) > 1 {
			field = field.index(i)
		}
		for _, c := range r.When {
			if c.Absent && slices.Contains(set, c.Attribute) {
				d.problem(n, field, "has %s, which when wants absent; no request would match", quote(c.Attribute))
			}
		}
	}
}

// addressed refuses a length of addresses that no counter is told apart by.
func (d *decoder) addressed(n *yaml.Node, at path, r *Rule) {
	hasIP := func(set []string) bool { return slices.Contains(set, IPAttribute) }
	if r.IPv6Prefix != defaultIPv6Prefix && !slices.ContainsFunc(r.Per, hasIP) {
		d.problem(valueOf(n, "ipv6_prefix"), at.key("ipv6_prefix"), "is for rules with %s in per, which this one has not", quote(IPAttribute))
	}
}

// delay gives all limits the rule's longest delay.
func (d *decoder) delay(n *yaml.Node, at path, r *Rule) {
	if r.maxDelay == 0 {
		return
	}
	value := valueOf(n, "max_delay")
	for i := range r.Limits {
		l := &r.Limits[i]
		if !slices.Contains(delaying, l.Algorithm.String()) {
			d.problem(value, at.key("max_delay"), "limits[%d] is of %s, which has no delays; those that have are %s",
				i, l.Algorithm, strings.Join(delaying, ", "))
			continue
		}
		l.MaxDelay = r.maxDelay
		if err := l.Validate(); err != nil {
			d.problem(value, at.key("limits").index(i), "%v", err)
		}
	}
}

// raisable refuses a mode that takes a limit out of its bounds.
func (d *decoder) raisable(n *yaml.Node, at path, r *Rule) {
	if r.Mode.Kind == Hard {
		return
	}
	for i, l := range r.Limits {
		raised, above := raise(l, r.Mode.Percent)
		if err := raised.Validate(); err != nil {
			d.problem(valueOf(n, "mode"), at.key("mode"), "lets %d through above limits[%d], but %v", above, i, err)
		}
	}
}
