package rules

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirlimit/weir/algorithms"
)

// This file is the schema of a rules file: one table of fields per mapping, and
// one function per field.

// nameBytes may stand in names.
const nameBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// document is one YAML document.
type document struct {
	domain string
	rules  []*Rule
}

var documentFields = []field[document]{
	{"domain", true, func(d *decoder, n *yaml.Node, at path, doc *document) { doc.domain = d.name(n, at, ".", maxDomain) }},
	{"rules", true, (*decoder).rules},
}

var ruleFields = []field[Rule]{
	{"id", true, func(d *decoder, n *yaml.Node, at path, r *Rule) { r.ID = d.name(n, at, "./", maxID) }},
	{"when", false, (*decoder).when},
	{"per", false, (*decoder).per},
	{"limits", true, (*decoder).limits},
	{"unlimited", false, func(d *decoder, n *yaml.Node, at path, r *Rule) { r.Unlimited = d.boolean(n, at) }},
	{"replaces", false, (*decoder).replaces},
	{"on_failure", false, (*decoder).onFailure},
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
	counting := []string{"per", "limits", "on_failure", "enforce", "mode", "max_delay", "cost", "ipv6_prefix"}
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
	var doc document
	fields(d, n, at, documentFields, &doc)
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

// attribute checks the name of an attribute, and returns it in the memory that all
// rules share: Match compares with it.
func (d *decoder) attribute(n *yaml.Node, at path, s string) string {
	if s == "" || len(s) > maxAttribute {
		d.problem(n, at, "the attribute's name %s has %d bytes, not 1 to %d", quote(s), len(s), maxAttribute)
	}
	if shared, ok := d.attributes[s]; ok {
		return shared
	}
	d.attributes[s] = s
	return s
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
		set = append(set, d.attribute(n, at, s))
	})
	slices.Sort(set)
	return set
}

func (d *decoder) when(n *yaml.Node, at path, r *Rule) {
	d.mapping(n, at, func(key, value *yaml.Node) {
		if len(r.When) == maxConditions {
			d.problem(key, at, "has %d conditions, more than %d", len(n.Content)/2, maxConditions)
		}
		r.When = append(r.When, d.condition(value, at.key(key.Value), d.attribute(key, at, key.Value)))
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
	parse := parsePattern
	if c.Attribute == IPAttribute {
		parse = parseIPPattern
	}
	p, err := parse(s, &d.regexpBudget)
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
		same := func(other algorithms.Limit) bool { return salt(l) == salt(other) }
		if slices.ContainsFunc(r.Limits, same) {
			d.problem(n, at, "is a second limit of %s over %s; keep one", l.Algorithm, windowText(l))
		}
		r.Limits = append(r.Limits, l)
	})
}

// window reads a duration, or a calendar.
func (d *decoder) window(n *yaml.Node, at path, l *algorithms.Limit) {
	if n.Kind != yaml.MappingNode {
		l.Window = d.duration(n, at, algorithms.MinWindow)
		return
	}
	var c CalendarSpec
	before := d.problems.total
	fields(d, n, at, calendarFields, &c)
	if d.problems.total > before {
		return
	}
	var err error
	if l.Calendar, err = algorithms.NewCalendar(c.Calendar, c.Timezone, c.Anchor); err != nil {
		d.problem(n, at, "%v", err)
	}
}

// duration reads one from least to MaxWindow, in nanoseconds.
func (d *decoder) duration(n *yaml.Node, at path, least time.Duration) int64 {
	if !d.is(n, yaml.ScalarNode, at, "a duration") {
		return 0
	}
	w, err := parseDuration(n.Value, least)
	if err != nil {
		d.problem(n, at, "%s %v", quote(n.Value), err)
	}
	return int64(w)
}

func (d *decoder) buckets(n *yaml.Node, at path, l *algorithms.Limit) {
	if l.Buckets = d.whole(n, at, 1, algorithms.MaxBuckets); l.Buckets == algorithms.DefaultBuckets {
		l.Buckets = 0 // one form for what is the same
	}
}

func (d *decoder) algorithm(n *yaml.Node, at path, l *algorithms.Limit) {
	l.Algorithm, _ = algorithms.Parse(d.choice(n, at, "an algorithm", algorithms.Names()))
}

func (d *decoder) onFailure(n *yaml.Node, at path, r *Rule) {
	name := d.choice(n, at, "a failure policy", failurePolicies)
	r.OnFailure = FailurePolicy(max(0, slices.Index(failurePolicies, name)))
}

func (d *decoder) replaces(n *yaml.Node, at path, r *Rule) {
	d.names(n, at, 1, maxReplaces, func(n *yaml.Node, at path, id string) {
		r.Replaces = append(r.Replaces, id)
		d.refer(n, at, r, id, false)
	})
	slices.Sort(r.Replaces)
}

func (d *decoder) mode(n *yaml.Node, at path, r *Rule) {
	const forms = "write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}"
	if n.Kind == yaml.ScalarNode && n.Value == "hard" && d.plain(n, at) {
		return
	}
	if !d.is(n, yaml.MappingNode, at, "a mode; "+forms) {
		return
	}
	fields(d, n, at, modeFields, r)
	if len(n.Content) == 0 || r.Mode.Kind == Soft|Elastic {
		d.problem(n, at, "has %d modes, not 1; %s", len(n.Content)/2, forms)
	}
}

// percent reads a whole number of percents from least to most.
func (d *decoder) percent(n *yaml.Node, at path, least, most int64) int64 {
	if !d.is(n, yaml.ScalarNode, at, "a percentage") {
		return 0
	}
	digits, sign := strings.CutSuffix(n.Value, "%")
	percent, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case !sign || !isWhole(digits):
		d.problem(n, at, "%s is not a percentage; write a whole number and a sign, such as %d%%", quote(n.Value), least+9)
	case err != nil || percent < least || percent > most:
		d.problem(n, at, "%s is not between %d%% and %d%%", quote(n.Value), least, most)
	}
	return percent
}

// cost reads a number, or the name of the attribute that has it.
func (d *decoder) cost(n *yaml.Node, at path, r *Rule) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && !isWhole(n.Value) {
		if s, ok := d.text(n, at); ok {
			r.costAttribute = d.attribute(n, at, s)
		}
		return
	}
	r.cost = d.whole(n, at, 0, algorithms.MaxCost)
}
