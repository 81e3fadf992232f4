package rules

import (
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/rules/internal/problem"
	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// This file is the schema of a rules file: one table of keys per mapping.

// domainBytes and idBytes may stand in names of domains and of rules, with problem.NameBytes.
const (
	domainBytes = "."
	idBytes     = "./"
)

// domainRules is one YAML document: the rules of a domain.
type domainRules struct {
	domain string
	rules  []*Rule
}

var documentKeys = []key[domainRules]{
	{required: true, Field: Field{
		Key: "domain", Type: "name", Example: "shop",
		Bounds:  fmt.Sprintf("%d bytes: letters, digits, `_ - .`", maxDomain),
		Meaning: "namespace of the rules; a request names one, and only the rules of that one matter",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, doc *domainRules) {
		doc.domain = d.pathName(n, at, domainBytes, maxDomain)
	}},
	{required: true, read: (*decoder).rules, Field: Field{
		Key: "rules", Type: "list", Bounds: "as below", Example: "[]", Meaning: "the rules of the domain",
	}},
}

var ruleKeys = []key[Rule]{
	{required: true, Field: Field{
		Key: "id", Type: "name", Example: "posts-per-user",
		Bounds:  fmt.Sprintf("unique in the domain; %d bytes: letters, digits, `_ - . /`, with neither nothing nor dots alone between slashes", maxID),
		Meaning: "name of the rule, and part of the name of its counters",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, r *Rule) { r.ID = d.pathName(n, at, idBytes, maxID) }},
	{read: (*decoder).when, Field: Field{
		Key: "when", Type: "conditions by attribute", Default: "none: always", Example: "{method: [POST, PUT]}",
		Bounds:  fmt.Sprintf("%d; names of %d bytes, values of %d, expressions of %d, %d in a list", maxConditions, maxAttribute, maxValue, maxRegexp, maxList),
		Meaning: "what a request must have for the rule to match",
	}},
	counting(key[Rule]{read: (*decoder).per, Field: Field{
		Key: "per", Type: "attributes, or a list of such sets", Default: "one shared counter", Example: "[user]",
		Bounds:  fmt.Sprintf("%d in a set, %d sets", maxPer, maxPerSets),
		Meaning: "attributes whose values choose the counter",
	}}),
	counting(key[Rule]{required: true, read: (*decoder).limits, Field: Field{
		Key: "limits", Type: "list", Example: "[{limit: 10, window: 1s}]",
		Bounds:  fmt.Sprintf("1 to %d; no two of one algorithm and window", maxLimits),
		Meaning: "limits that must all have room",
	}}),
	{Field: Field{
		Key: "unlimited", Type: "boolean", Default: "`false`", Example: "true",
		Bounds:  "then with `when`, `replaces` and `enabled` only",
		Meaning: "exempts the requests that match from all rules, or from those in `replaces`",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, r *Rule) { r.Unlimited = d.boolean(n, at) }},
	{read: (*decoder).replaces, Field: Field{
		Key: "replaces", Type: "ids", Default: "none", Example: "[other]",
		Bounds:  fmt.Sprintf("1 to %d other rules of the domain, no circles", maxReplaces),
		Meaning: "rules that do not apply to requests that match this one",
	}},
	counting(key[Rule]{read: (*decoder).onFailure, Field: Field{
		Key: "on_failure", Type: "name", Default: "`allow`", Example: "deny",
		Bounds: code(failurePolicies), Meaning: "what happens while no node can decide",
	}}),
	counting(key[Rule]{read: (*decoder).durability, Field: Field{
		Key: "durability", Type: "name", Default: "`relaxed`", Example: "strict",
		Bounds: code(durabilities), Meaning: "what can be forgotten when a node dies",
	}}),
	counting(wholes(Field{
		Key: "enforce", Type: "percent of the counters", Default: "100", Least: 0, Most: 100, Example: "25",
		Meaning: "share of the counters whose denials deny; 0 is a shadow rule",
	}, func(r *Rule, value int64) { r.Enforce = value })),
	counting(key[Rule]{read: (*decoder).mode, Field: Field{
		Key: "mode", Type: "`hard`, or a mapping as below", Default: "`hard`", Example: "{soft: {over: 10%}}",
		Meaning: "what happens above the limits",
	}}),
	counting(key[Rule]{Field: Field{
		Key: "max_delay", Type: "duration", Default: "`0s`", Example: "2s",
		Bounds:  fmt.Sprintf("up to `%s`; %s", formatWindow(algorithms.MaxWindow), draining()),
		Meaning: "how long a request may have to wait instead of being denied",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, r *Rule) { r.maxDelay = d.duration(n, at, 0) }}),
	counting(key[Rule]{read: (*decoder).cost, Field: Field{
		Key: "cost", Type: "number, or an attribute's name", Default: "1", Least: 0, Most: algorithms.MaxCost, Example: "kilobytes",
		Bounds:  fmt.Sprintf("0 to %d", int64(algorithms.MaxCost)),
		Meaning: "tokens that each requested token costs",
	}}),
	counting(wholes(Field{
		Key: "ipv6_prefix", Type: "bits", Default: strconv.Itoa(defaultIPv6Prefix), Least: 1, Most: 128, Example: "56",
		Bounds: "; only with `ip` in `per`", Meaning: "how many bits of an IPv6 address tell counters apart",
	}, func(r *Rule, value int64) { r.IPv6Prefix = int(value) })),
	{Field: Field{
		Key: "enabled", Type: "boolean", Default: "`true`", Example: "false",
		Meaning: "`false` takes the rule out of force; it is still checked",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, r *Rule) { r.Enabled = d.boolean(n, at) }},
}

var limitKeys = []key[algorithms.Limit]{
	mustHave(wholes(Field{
		Key: "limit", Type: "tokens", Least: 0, Most: algorithms.MaxLimit, Example: "100",
		Bounds:  lowerBounds(),
		Meaning: "tokens per window; 0 always denies",
	}, func(l *algorithms.Limit, value int64) { l.Limit = value })),
	{required: true, read: (*decoder).window, Field: Field{
		Key: "window", Type: "duration, or a calendar", Example: "1m",
		Bounds:  fmt.Sprintf("`%s` to `%s`", formatWindow(algorithms.MinWindow), formatWindow(algorithms.MaxWindow)),
		Meaning: "time in which `limit` tokens are allowed",
	}},
	wholes(Field{
		Key: "burst", Type: "tokens", Default: "as `limit`", Least: 0, Most: algorithms.MaxLimit, Example: "20",
		Bounds: "; " + draining(), Meaning: "tokens that can be taken at once",
	}, func(l *algorithms.Limit, value int64) { l.Burst = value }),
	wholes(Field{
		Key: "buckets", Default: strconv.Itoa(algorithms.DefaultBuckets), Least: 1, Most: algorithms.MaxBuckets, Example: "12",
		Bounds: "; " + code(algorithms.NamesOf(algorithms.Algorithm.HasBuckets)), Meaning: "sub-windows that a window is cut into",
	}, func(l *algorithms.Limit, value int64) {
		if l.Buckets = value; value == algorithms.DefaultBuckets {
			l.Buckets = 0 // one form for what is the same
		}
	}),
	{read: (*decoder).algorithm, Field: Field{
		Key: "algorithm", Type: "name", Default: "`" + defaultAlgorithm.String() + "`", Example: "gcra",
		Bounds: code(algorithms.Names()), Meaning: "how tokens are [counted](../algorithms.md)",
	}},
}

var calendarKeys = []key[CalendarSpec]{
	{required: true, Field: Field{
		Key: "calendar", Type: "unit", Example: "month",
		Bounds: code(algorithms.CalendarUnits()), Meaning: "what a window is",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, c *CalendarSpec) { c.Calendar, _ = d.text(n, at) }},
	{Field: Field{
		Key: "timezone", Type: "IANA name", Default: "UTC", Example: "Europe/Paris", Meaning: "zone whose midnight counts",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, c *CalendarSpec) { c.Timezone, _ = d.text(n, at) }},
	wholes(Field{
		Key: "anchor", Default: "1", Least: 1, Most: maxAnchor, Example: "15",
		Bounds:  ": `week` 1 to 7, `month` 1 to 31, `quarter` and `year` 1 to 12",
		Meaning: "weekday, day or month on which a window begins",
	}, func(c *CalendarSpec, value int64) { c.Anchor = value }),
}

var conditionKeys = []key[Condition]{
	{required: true, read: (*decoder).absent, Field: Field{
		Key: "absent", Type: "boolean", Bounds: "`true`", Example: "true", Meaning: "the request must not have the attribute",
	}},
}

// modeKeys are those of a mode that is not hard.
var modeKeys = []key[Rule]{
	{Field: Field{
		Key: "soft", Type: "mapping", Default: "none", Bounds: "excludes `elastic`", Example: "{over: 10%}", Meaning: "allows requests in a share above the limit, flagged",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, r *Rule) {
		r.Mode.Kind |= Soft
		readMapping(d, n, at, softFields, r)
	}},
	{Field: Field{
		Key: "elastic", Type: "mapping", Default: "none", Bounds: "excludes `soft`", Example: "{parent: other, up_to: 150%}", Meaning: "allows requests up to a share of the limit while the parent has room",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, r *Rule) {
		r.Mode.Kind |= Elastic
		readMapping(d, n, at, elasticFields, r)
	}},
}

var softKeys = []key[Rule]{
	percents(Field{
		Key: "over", Type: "percent above the limit", Least: 1, Most: maxOver, Example: "10%", Meaning: "share above the limit that is allowed",
	}, func(r *Rule, value int64) { r.Mode.Percent = value }),
}

var elasticKeys = []key[Rule]{
	{required: true, Field: Field{
		Key: "parent", Type: "id", Bounds: "a rule of the domain that is enabled and has limits; no circles", Example: "other",
		Meaning: "rule that must match and have room as well",
	}, read: func(d *decoder, n *yaml.Node, at problem.Path, r *Rule) {
		if id, ok := d.text(n, at); ok {
			r.Mode.Parent = id
			d.refer(n, at, r, id, true)
		}
	}},
	percents(Field{
		Key: "up_to", Type: "percent of the limit", Least: 101, Most: maxUpTo, Example: "150%", Meaning: "share of the limit that is allowed in all",
	}, func(r *Rule, value int64) { r.Mode.Percent = value - 100 }),
}

// What the decoder reads of each mapping.
var (
	documentFields  = readers(documentKeys)
	ruleFields      = readers(ruleKeys)
	limitFields     = readers(limitKeys)
	calendarFields  = readers(calendarKeys)
	conditionFields = readers(conditionKeys)
	modeFields      = readers(modeKeys)
	softFields      = readers(softKeys)
	elasticFields   = readers(elasticKeys)
)

// unlimitedFields are those of a rule that is unlimited: what says how to count is
// refused.
var unlimitedFields = func() (all []keyReader[Rule]) {
	for _, k := range ruleKeys {
		if k.counts {
			k.required, k.read = false, func(d *decoder, n *yaml.Node, at problem.Path, _ *Rule) {
				d.problem(n, at, "is not for an unlimited rule, which counts nothing")
			}
		}
		all = append(all, keyReader[Rule]{k.Key, k.required, k.read})
	}
	return all
}()

// defaultAlgorithm is that of limits that name none.
const defaultAlgorithm = algorithms.SlidingWindow

func (d *decoder) document(n *yaml.Node, at problem.Path) {
	if envoy.IsDocument(n, d.how.Files != YAMLFiles) {
		d.descriptors(n, at)
		return
	}
	if yamlnode.ValueOf(n, "rules") != nil && yamlnode.ValueOf(n, "descriptors") != nil {
		name := ""
		if domain := yamlnode.ValueOf(n, "domain"); domain != nil {
			name = " " + problem.Quote(domain.Value)
		}
		d.problem(n, at, "domain%s has both rules and descriptors; a domain has either", name)
		return
	}
	var doc domainRules
	readMapping(d, n, at, documentFields, &doc)
	d.domains = append(d.domains, doc.domain)
	for _, r := range doc.rules {
		r.Domain = doc.domain
		d.addRule(r)
	}
}

// defaultRule returns a rule that has the defaults of its keys.
func defaultRule() *Rule {
	return &Rule{Enforce: 100, IPv6Prefix: defaultIPv6Prefix, Enabled: true, cost: 1}
}

func (d *decoder) rules(n *yaml.Node, at problem.Path, doc *domainRules) {
	d.list(n, at, 0, maxRules, func(n *yaml.Node, at problem.Path) {
		if id := ruleID(n); id != "" {
			at = problem.Path{Rule: id}
		}
		r := defaultRule()
		r.file, r.line, r.column = d.file, n.Line, n.Column
		before := d.problems.Total()
		if isUnlimited(n) {
			readMapping(d, n, at, unlimitedFields, r)
		} else {
			readMapping(d, n, at, ruleFields, r)
		}
		if d.problems.Total() == before {
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
	if id := yamlnode.ValueOf(n, "id"); id != nil && id.Kind == yaml.ScalarNode {
		return id.Value
	}
	return ""
}

// isUnlimited looks ahead for which fields the rule n may have.
func isUnlimited(n *yaml.Node) bool {
	u := yamlnode.ValueOf(n, "unlimited")
	return u != nil && u.Tag == "!!bool" && u.Value == "true"
}
