package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/internal/problem"
	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// This file has what is to be said of a rule whose fields are good one by one.

// addressed refuses a length of addresses that no counter is told apart by.
func (d *decoder) addressed(n *yaml.Node, at problem.Path, r *Rule) {
	hasIP := func(set []string) bool { return slices.Contains(set, IPAttribute) }
	if r.IPv6Prefix != defaultIPv6Prefix && !slices.ContainsFunc(r.Per, hasIP) {
		d.problem(yamlnode.ValueOf(n, "ipv6_prefix"), at.Key("ipv6_prefix"), "is for rules with %s in per, which this one has not", problem.Quote(IPAttribute))
	}
}

// delay gives all limits the rule's longest delay.
func (d *decoder) delay(n *yaml.Node, at problem.Path, r *Rule) {
	if r.maxDelay == 0 {
		return
	}
	value := yamlnode.ValueOf(n, "max_delay")
	for i := range r.Limits {
		l := &r.Limits[i]
		if !l.Algorithm.Drains() {
			d.problem(value, at.Key("max_delay"), "limits[%d] is of %s, which has no delays; those that have are %s",
				i, l.Algorithm, strings.Join(algorithms.NamesOf(algorithms.Algorithm.Drains), ", "))
			continue
		}
		l.MaxDelay = r.maxDelay
		if err := l.Validate(); err != nil {
			d.problem(value, at.Key("limits").Index(i), "%v", err)
		}
	}
}

// raisable refuses a mode that takes a limit out of its bounds.
func (d *decoder) raisable(n *yaml.Node, at problem.Path, r *Rule) {
	if r.Mode.Kind == Hard {
		return
	}
	for i, l := range r.Limits {
		raised, above := raise(l, r.Mode.Percent)
		if err := raised.Validate(); err != nil {
			d.problem(yamlnode.ValueOf(n, "mode"), at.Key("mode"), "lets %d through above limits[%d], but %v", above, i, err)
		}
	}
}
