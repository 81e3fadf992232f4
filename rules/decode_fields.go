package rules

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/internal/counter"
	"github.com/weirlimit/weir/rules/internal/problem"
)

// This file reads the fields of rules and limits that take more than a line.

// name reads a text of 1 to most letters, digits and '_', '-' or others.
func (d *decoder) name(n *yaml.Node, at problem.Path, others string, most int) string {
	s, ok := d.text(n, at)
	switch {
	case !ok:
	case s == "" || len(s) > most:
		d.problem(n, at, "%s has %d bytes, not 1 to %d", problem.Quote(s), len(s), most)
	default:
		if bad := strings.Trim(s, problem.NameBytes+others); bad != "" {
			d.problem(n, at, "%s has characters other than letters, digits and %s", problem.Quote(s), strings.Join(strings.Split("_-"+others, ""), " "))
		}
	}
	return s
}

// attribute checks the name of an attribute, and returns it in the memory that all
// rules share: Match compares with it.
func (d *decoder) attribute(n *yaml.Node, at problem.Path, s string) string {
	if s == "" || len(s) > maxAttribute {
		d.problem(n, at, "the attribute's name %s has %d bytes, not 1 to %d", problem.Quote(s), len(s), maxAttribute)
	}
	d.requestField(n, at, s)
	if shared, ok := d.attributes[s]; ok {
		return shared
	}
	d.attributes[s] = s
	return s
}

// per reads one set of attributes, or a list of sets.
func (d *decoder) per(n *yaml.Node, at problem.Path, r *Rule) {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 || n.Content[0].Kind != yaml.SequenceNode {
		if set := d.perSet(n, at, 0); len(set) > 0 {
			r.Per = [][]string{set}
		}
		return
	}
	d.list(n, at, 1, maxPerSets, func(n *yaml.Node, at problem.Path) {
		set := d.perSet(n, at, 1)
		same := func(other []string) bool { return slices.Equal(set, other) }
		if len(set) > 0 && slices.ContainsFunc(r.Per, same) {
			d.problem(n, at, "is a second set of %s; keep one", strings.Join(set, ", "))
		}
		r.Per = append(r.Per, set)
	})
	slices.SortFunc(r.Per, slices.Compare)
}

func (d *decoder) perSet(n *yaml.Node, at problem.Path, least int) (set []string) {
	d.distinct(n, at, least, maxPer, func(n *yaml.Node, at problem.Path, s string) {
		set = append(set, d.attribute(n, at, s))
	})
	slices.Sort(set)
	return set
}

func (d *decoder) when(n *yaml.Node, at problem.Path, r *Rule) {
	d.mapping(n, at, func(key, value *yaml.Node) {
		if len(r.When) == maxConditions {
			d.problem(key, at, "has %d conditions, more than %d", len(n.Content)/2, maxConditions)
		}
		r.When = append(r.When, d.condition(value, at.Key(key.Value), d.attribute(key, at, key.Value)))
	})
	slices.SortFunc(r.When, compareConditions)
}

func (d *decoder) condition(n *yaml.Node, at problem.Path, attribute string) Condition {
	c := Condition{Attribute: attribute}
	switch n.Kind {
	case yaml.MappingNode:
		readMapping(d, n, at, conditionFields, &c)
	case yaml.SequenceNode:
		d.distinct(n, at, 1, maxList, func(n *yaml.Node, at problem.Path, s string) {
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

func (d *decoder) pattern(n *yaml.Node, at problem.Path, s string, c *Condition) {
	parse := parsePattern
	if c.Attribute == IPAttribute {
		parse = parseIPPattern
	}
	p, err := parse(s, &d.regexpBudget)
	if err != nil {
		d.problem(n, at, "%s %v", problem.Quote(s), err)
		return
	}
	if c.Attribute == IPAttribute {
		d.address(n, at, p, s)
	}
	c.add(p)
}

func (d *decoder) absent(n *yaml.Node, at problem.Path, c *Condition) {
	if c.Absent = d.boolean(n, at); n.Value == "false" {
		d.problem(n, at, `"false" is not allowed; for an attribute that is there, write "*" as the condition`)
	}
}

func (d *decoder) limits(n *yaml.Node, at problem.Path, r *Rule) {
	d.list(n, at, 1, maxLimits, func(n *yaml.Node, at problem.Path) {
		l := algorithms.Limit{Algorithm: defaultAlgorithm}
		before := d.problems.Total()
		readMapping(d, n, at, limitFields, &l)
		if d.problems.Total() > before {
			return
		}
		if err := l.Validate(); err != nil {
			d.problem(n, at, "%v", err)
		}
		same := func(other algorithms.Limit) bool { return counter.Salt(l) == counter.Salt(other) }
		if slices.ContainsFunc(r.Limits, same) {
			d.problem(n, at, "is a second limit of %s over %s; keep one", l.Algorithm, windowText(l))
		}
		r.Limits = append(r.Limits, l)
	})
}

// window reads a duration, or a calendar.
func (d *decoder) window(n *yaml.Node, at problem.Path, l *algorithms.Limit) {
	if n.Kind != yaml.MappingNode {
		l.Window = d.duration(n, at, algorithms.MinWindow)
		return
	}
	var c CalendarSpec
	before := d.problems.Total()
	readMapping(d, n, at, calendarFields, &c)
	if d.problems.Total() > before {
		return
	}
	calendar, err := algorithms.NewCalendar(c.Calendar, c.Timezone, c.Anchor)
	if err != nil {
		d.problem(n, at, "%v", err)
		return
	}
	if d.calendars[calendar] = true; len(d.calendars) > maxCalendars {
		d.problem(n, at, "%s is one more than the %d distinct calendars that a set may have", calendar, maxCalendars)
	}
	l.Calendar = calendar
}

// duration reads one from least to MaxWindow, in nanoseconds.
func (d *decoder) duration(n *yaml.Node, at problem.Path, least time.Duration) int64 {
	if !d.is(n, yaml.ScalarNode, at, "a duration") {
		return 0
	}
	w, err := parseDuration(n.Value, least)
	if err != nil {
		d.problem(n, at, "%s %v", problem.Quote(n.Value), err)
	}
	return int64(w)
}

func (d *decoder) algorithm(n *yaml.Node, at problem.Path, l *algorithms.Limit) {
	l.Algorithm, _ = algorithms.Parse(d.choice(n, at, "an algorithm", algorithms.Names()))
}

func (d *decoder) onFailure(n *yaml.Node, at problem.Path, r *Rule) {
	name := d.choice(n, at, "a failure policy", failurePolicies)
	r.OnFailure = FailurePolicy(max(0, slices.Index(failurePolicies, name)))
}

func (d *decoder) durability(n *yaml.Node, at problem.Path, r *Rule) {
	name := d.choice(n, at, "a durability", durabilities)
	r.Durability = Durability(max(0, slices.Index(durabilities, name)))
}

func (d *decoder) replaces(n *yaml.Node, at problem.Path, r *Rule) {
	d.distinct(n, at, 1, maxReplaces, func(n *yaml.Node, at problem.Path, id string) {
		r.Replaces = append(r.Replaces, id)
		d.refer(n, at, r, id, false)
	})
	slices.Sort(r.Replaces)
}

func (d *decoder) mode(n *yaml.Node, at problem.Path, r *Rule) {
	const forms = "write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}"
	if n.Kind == yaml.ScalarNode && n.Value == "hard" && d.plain(n, at) {
		return
	}
	if !d.is(n, yaml.MappingNode, at, "a mode; "+forms) {
		return
	}
	readMapping(d, n, at, modeFields, r)
	if len(n.Content) == 0 || r.Mode.Kind == Soft|Elastic {
		d.problem(n, at, "has %d modes, not 1; %s", len(n.Content)/2, forms)
	}
}

// percent reads a whole number of percents from least to most.
func (d *decoder) percent(n *yaml.Node, at problem.Path, least, most int64) int64 {
	if !d.is(n, yaml.ScalarNode, at, "a percentage") {
		return 0
	}
	digits, sign := strings.CutSuffix(n.Value, "%")
	percent, err := strconv.ParseInt(digits, 10, 64)
	switch {
	case !sign || !isWhole(digits):
		d.problem(n, at, "%s is not a percentage; write a whole number and a sign, such as %d%%", problem.Quote(n.Value), least+9)
	case err != nil || percent < least || percent > most:
		d.problem(n, at, "%s is not between %d%% and %d%%", problem.Quote(n.Value), least, most)
	}
	return percent
}

// cost reads a number, or the name of the attribute that has it.
func (d *decoder) cost(n *yaml.Node, at problem.Path, r *Rule) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" && !isWhole(n.Value) {
		if s, ok := d.text(n, at); ok {
			r.costAttribute = d.attribute(n, at, s)
		}
		return
	}
	r.cost = d.whole(n, at, 0, algorithms.MaxCost)
}
