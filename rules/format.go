package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/algorithms"
)

// This file is the schema of a rules file: one table of fields per mapping, and
// one function per field.

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
	{"enabled", false, func(d *decoder, n *yaml.Node, at path, r *Rule) { r.Enabled = d.boolean(n, at) }},
}

// defaultAlgorithm is that of limits that name none.
const defaultAlgorithm = algorithms.SlidingWindow

var limitFields = []field[algorithms.Limit]{
	{"limit", true, func(d *decoder, n *yaml.Node, at path, l *algorithms.Limit) {
		l.Limit = d.whole(n, at, algorithms.MaxLimit)
	}},
	{"window", true, (*decoder).window},
	{"burst", false, func(d *decoder, n *yaml.Node, at path, l *algorithms.Limit) {
		l.Burst = d.whole(n, at, algorithms.MaxLimit)
	}},
	{"algorithm", false, (*decoder).algorithm},
}

var conditionFields = []field[Condition]{
	{"absent", true, (*decoder).absent},
}

func (d *decoder) document(n *yaml.Node, at path) {
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
		r := &Rule{Enabled: true, file: d.file, line: n.Line, column: n.Column}
		before := d.problems.total
		fields(d, n, at, ruleFields, r)
		if d.problems.total == before {
			d.matchable(n, at, r)
		}
		doc.rules = append(doc.rules, r)
	})
}

// ruleID looks ahead for what messages call the rule n.
func ruleID(n *yaml.Node) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "id" && n.Kind == yaml.MappingNode && n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// matchable refuses a rule that no request can match.
func (d *decoder) matchable(n *yaml.Node, at path, r *Rule) {
	for _, c := range r.When {
		wanted := func(set []string) bool { return slices.Contains(set, c.Attribute) }
		if c.Absent && slices.ContainsFunc(r.Per, wanted) {
			d.problem(n, at.key("per"), "has %s, which when wants absent; no request would match", quote(c.Attribute))
		}
	}
}

// name reads a text of 1 to most letters, digits and '_', '-' or others.
func (d *decoder) name(n *yaml.Node, at path, others string, most int) string {
	s, ok := d.text(n, at)
	switch {
	case !ok:
	case s == "" || len(s) > most:
		d.problem(n, at, "%s has %d bytes, not 1 to %d", quote(s), len(s), most)
	default:
		if bad := strings.Trim(s, nameBytes+others); bad != "" {
			d.problem(n, at, "%s has characters other than letters, digits and %s", quote(s), strings.Join(strings.Split("_-"+others, ""), " "))
		}
	}
	return s
}

// attribute checks the name of an attribute.
func (d *decoder) attribute(n *yaml.Node, at path, s string) {
	if s == "" || len(s) > maxAttribute {
		d.problem(n, at, "the attribute's name %s has %d bytes, not 1 to %d", quote(s), len(s), maxAttribute)
	}
}

// per reads one set of attributes, or a list of sets.
func (d *decoder) per(n *yaml.Node, at path, r *Rule) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || n.Content[0].Kind != yaml.SequenceNode {
		if set := d.perSet(n, at, 0); len(set) > 0 {
			r.Per = [][]string{set}
		}
		return
	}
	d.list(n, at, 1, maxPerSets, func(n *yaml.Node, at path) {
		set := d.perSet(n, at, 1)
		same := func(other []string) bool { return slices.Equal(set, other) }
		if len(set) > 0 && slices.ContainsFunc(r.Per, same) {
			d.problem(n, at, "is a second set of %s; keep one", strings.Join(set, ", "))
		}
		r.Per = append(r.Per, set)
	})
	slices.SortFunc(r.Per, slices.Compare)
}

func (d *decoder) perSet(n *yaml.Node, at path, least int) (set []string) {
	d.names(n, at, least, maxPer, func(n *yaml.Node, at path, s string) {
		d.attribute(n, at, s)
		set = append(set, s)
	})
	slices.Sort(set)
	return set
}

func (d *decoder) when(n *yaml.Node, at path, r *Rule) {
	d.mapping(n, at, func(key, value *yaml.Node) {
		if len(r.When) == maxConditions {
			d.problem(key, at, "has %d conditions, more than %d", len(n.Content)/2, maxConditions)
		}
		d.attribute(key, at, key.Value)
		r.When = append(r.When, d.condition(value, at.key(key.Value), key.Value))
	})
	slices.SortFunc(r.When, compareConditions)
}

func (d *decoder) condition(n *yaml.Node, at path, attribute string) Condition {
	c := Condition{Attribute: attribute}
	switch n.Kind {
	case yaml.MappingNode:
		fields(d, n, at, conditionFields, &c)
	case yaml.SequenceNode:
		d.names(n, at, 1, maxList, func(n *yaml.Node, at path, s string) {
			if s == "*" {
				d.problem(n, at, `"*" fits every value; write it alone instead of a list`)
				return
			}
			d.pattern(n, at, s, &c)
		})
	default:
		if s, ok := d.text(n, at); ok {
			d.pattern(n, at, s, &c)
		}
	}
	c.normalize()
	return c
}

func (d *decoder) pattern(n *yaml.Node, at path, s string, c *Condition) {
	p, err := parsePattern(s, &d.regexpBudget)
	if err != nil {
		d.problem(n, at, "%s %v", quote(s), err)
		return
	}
	c.add(p)
}

func (d *decoder) absent(n *yaml.Node, at path, c *Condition) {
	if c.Absent = d.boolean(n, at); n.Value == "false" {
		d.problem(n, at, `"false" is not allowed; for an attribute that is there, write "*" as the condition`)
	}
}

func (d *decoder) limits(n *yaml.Node, at path, r *Rule) {
	d.list(n, at, 1, maxLimits, func(n *yaml.Node, at path) {
		l := algorithms.Limit{Algorithm: defaultAlgorithm}
		before := d.problems.total
		fields(d, n, at, limitFields, &l)
		if d.problems.total > before {
			return
		}
		if err := l.Validate(); err != nil {
			d.problem(n, at, "%v", err)
		}
		same := func(other algorithms.Limit) bool { return compareLimits(l, other) == 0 }
		if slices.ContainsFunc(r.Limits, same) {
			d.problem(n, at, "is a second limit of %s over %s; keep one", l.Algorithm, formatWindow(time.Duration(l.Window)))
		}
		r.Limits = append(r.Limits, l)
	})
}

func (d *decoder) window(n *yaml.Node, at path, l *algorithms.Limit) {
	if !d.is(n, yaml.ScalarNode, at, "a duration") {
		return
	}
	w, err := parseWindow(n.Value)
	if err != nil {
		d.problem(n, at, "%s %v", quote(n.Value), err)
	}
	l.Window = int64(w)
}

func (d *decoder) algorithm(n *yaml.Node, at path, l *algorithms.Limit) {
	name, ok := d.text(n, at)
	if !ok {
		return
	}
	if l.Algorithm, ok = algorithms.Parse(name); ok {
		return
	}
	hint := ""
	if near := nearest(name, algorithms.Names()); near != "" {
		hint = fmt.Sprintf("; did you mean %s?", quote(near))
	}
	d.problem(n, at, "%s is not an algorithm; known are %s%s", quote(name), strings.Join(algorithms.Names(), ", "), hint)
}
