package rules

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/algorithms"
)

// This file is the schema of a rules file: one table of fields per mapping.

// nameBytes may stand in names, the others in those of domains and of rules too.
const (
	nameBytes   = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
	domainBytes = "."
	idBytes     = "./"
)

// document is one YAML document.
type document struct {
	domain string
	rules  []*Rule
}

var documentFields = []field[document]{
	{"domain", true, func(d *decoder, n *yaml.Node, at path, doc *document) {
		doc.domain = d.name(n, at, domainBytes, maxDomain)
	}},
	{"rules", true, (*decoder).rules},
}

var ruleFields = []field[Rule]{
	{"id", true, func(d *decoder, n *yaml.Node, at path, r *Rule) { r.ID = d.name(n, at, idBytes, maxID) }},
	{"when", false, (*decoder).when},
	{"per", false, (*decoder).per},
	{"limits", true, (*decoder).limits},
	{"unlimited", false, func(d *decoder, n *yaml.Node, at path, r *Rule) { r.Unlimited = d.boolean(n, at) }},
	{"replaces", false, (*decoder).replaces},
	{"on_failure", false, (*decoder).onFailure},
	{"durability", false, (*decoder).durability},
	{"enforce", false, func(d *decoder, n *yaml.Node, at path, r *Rule) { r.Enforce = d.whole(n, at, 0, 100) }},
	{"mode", false, (*decoder).mode},
	{"max_delay", false, func(d *decoder, n *yaml.Node, at path, r *Rule) {
		r.maxDelay = d.duration(n, at, 0)
	}},
	{"cost", false, (*decoder).cost},
	{"ipv6_prefix", false, func(d *decoder, n *yaml.Node, at path, r *Rule) {
		r.IPv6Prefix = int(d.whole(n, at, 1, 128))
	}},
	{"enabled", false, func(d *decoder, n *yaml.Node, at path, r *Rule) { r.Enabled = d.boolean(n, at) }},
}

// unlimitedFields are those of a rule that is unlimited: what says how to count is
// refused.
var unlimitedFields = func() []field[Rule] {
	counting := []string{"per", "limits", "on_failure", "durability", "enforce", "mode", "max_delay", "cost", "ipv6_prefix"}
	fields := slices.Clone(ruleFields)
	for i, f := range fields {
		if slices.Contains(counting, f.name) {
			fields[i] = field[Rule]{f.name, false, func(d *decoder, n *yaml.Node, at path, _ *Rule) {
				d.problem(n, at, "is not for an unlimited rule, which counts nothing")
			}}
		}
	}
	return fields
}()

var limitFields = []field[algorithms.Limit]{
	{"limit", true, func(d *decoder, n *yaml.Node, at path, l *algorithms.Limit) {
		l.Limit = d.whole(n, at, 0, algorithms.MaxLimit)
	}},
	{"window", true, (*decoder).window},
	{"burst", false, func(d *decoder, n *yaml.Node, at path, l *algorithms.Limit) {
		l.Burst = d.whole(n, at, 0, algorithms.MaxLimit)
	}},
	{"buckets", false, (*decoder).buckets},
	{"algorithm", false, (*decoder).algorithm},
}

var calendarFields = []field[CalendarSpec]{
	{"calendar", true, func(d *decoder, n *yaml.Node, at path, c *CalendarSpec) { c.Calendar, _ = d.text(n, at) }},
	{"timezone", false, func(d *decoder, n *yaml.Node, at path, c *CalendarSpec) { c.Timezone, _ = d.text(n, at) }},
	{"anchor", false, func(d *decoder, n *yaml.Node, at path, c *CalendarSpec) {
		c.Anchor = d.whole(n, at, 1, maxAnchor)
	}},
}

var conditionFields = []field[Condition]{
	{"absent", true, (*decoder).absent},
}

// modeFields are those of a mode that is not hard.
var modeFields = []field[Rule]{
	{"soft", false, func(d *decoder, n *yaml.Node, at path, r *Rule) {
		r.Mode.Kind |= Soft
		fields(d, n, at, softFields, r)
	}},
	{"elastic", false, func(d *decoder, n *yaml.Node, at path, r *Rule) {
		r.Mode.Kind |= Elastic
		fields(d, n, at, elasticFields, r)
	}},
}

var softFields = []field[Rule]{
	{"over", true, func(d *decoder, n *yaml.Node, at path, r *Rule) { r.Mode.Percent = d.percent(n, at, 1, maxOver) }},
}

var elasticFields = []field[Rule]{
	{"parent", true, func(d *decoder, n *yaml.Node, at path, r *Rule) {
		if id, ok := d.text(n, at); ok {
			r.Mode.Parent = id
			d.refer(n, at, r, id, true)
		}
	}},
	{"up_to", true, func(d *decoder, n *yaml.Node, at path, r *Rule) {
		r.Mode.Percent = d.percent(n, at, 101, maxUpTo) - 100
	}},
}

// defaultAlgorithm is that of limits that name none.
const defaultAlgorithm = algorithms.SlidingWindow

func (d *decoder) document(n *yaml.Node, at path) {
	if isDescriptors(n) {
		d.descriptorsDocument(n, at)
		return
	}
	if valueOf(n, "rules") != nil && valueOf(n, "descriptors") != nil {
		name := ""
		if domain := valueOf(n, "domain"); domain != nil {
			name = " " + quote(domain.Value)
		}
		d.problem(n, at, "domain%s has both rules and descriptors; a domain has either", name)
		return
	}
	var doc document
	fields(d, n, at, documentFields, &doc)
	d.domains = append(d.domains, doc.domain)
	for _, r := range doc.rules {
		r.Domain = doc.domain
		d.addRule(r)
	}
}

func (d *decoder) rules(n *yaml.Node, at path, doc *document) {
	d.list(n, at, 0, maxRules, func(n *yaml.Node, at path) {
		if id := ruleID(n); id != "" {
			at = path{rule: id}
		}
		r := &Rule{
			Enforce: 100, IPv6Prefix: defaultIPv6Prefix, Enabled: true, cost: 1,
			file: d.file, line: n.Line, column: n.Column,
		}
		before := d.problems.total
		if isUnlimited(n) {
			fields(d, n, at, unlimitedFields, r)
		} else {
			fields(d, n, at, ruleFields, r)
		}
		if d.problems.total == before {
			d.matchable(n, at, r)
			d.addressed(n, at, r)
			d.delay(n, at, r)
			d.raisable(n, at, r)
		}
		doc.rules = append(doc.rules, r)
	})
}

// ruleID looks ahead for what messages call the rule n.
func ruleID(n *yaml.Node) string {
	if id := valueOf(n, "id"); id != nil && id.Kind == yaml.ScalarNode {
		return id.Value
	}
	return ""
}

// isUnlimited looks ahead for which fields the rule n may have.
func isUnlimited(n *yaml.Node) bool {
	u := valueOf(n, "unlimited")
	return u != nil && u.Tag == "!!bool" && u.Value == "true"
}

// valueOf returns the value of a key in a mapping, or nil.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Kind == yaml.MappingNode && n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
