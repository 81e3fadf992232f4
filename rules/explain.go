package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules/internal/problem"
)

// Explanation says why a rule applies to a request, or does not.
type Explanation struct {
	Rule *Rule
	// Applies says that the rule applies: that it limits the request, or exempts it.
	Applies bool
	// Reason is why it does not, or what is special about it if it does, as a sentence
	// without its full stop. Where it has no subject, that is the rule.
	Reason string
	// Matches are the rule's among those that Match returns.
	Matches []Match
}

// Explain returns what Match decides, and why, for every rule of the request's
// domain in the order of the files. It is for people: it takes its time.
func (s *Set) Explain(h ring.Hasher, req *Request) []Explanation {
	matches := s.Match(h, req, nil)
	req = canonicalOf(req)
	var all []Explanation
	var matching []*Rule // as far as they themselves are concerned
	for _, r := range s.rules {
		if r.Domain != req.Domain {
			continue
		}
		e := Explanation{Rule: r, Reason: r.mismatch(req)}
		if e.Reason == "" {
			matching = append(matching, r)
		}
		for _, m := range matches {
			if m.Rule == r {
				e.Matches = append(e.Matches, m)
			}
		}
		all = append(all, e)
	}
	for i := range all {
		if e := &all[i]; e.Reason == "" {
			e.Reason = dropped(e.Rule, matching)
			e.Applies = e.Reason == ""
			if e.Applies && e.Rule.Durability == Strict {
				e.Reason = "is strict: answers may wait for the standby"
			}
		}
	}
	return all
}

// mismatch returns why r does not match req, regardless of other rules, or "".
func (r *Rule) mismatch(req *Request) string {
	if r.Descriptor != nil {
		return "is a descriptor, which only Envoy's API matches"
	}
	if !r.Enabled {
		return "is disabled"
	}
	for i := range r.When {
		if c := &r.When[i]; !c.holdsFor(req) {
			return c.mismatch(req)
		}
	}
	var missing []string
	for _, set := range r.Per {
		i := slices.IndexFunc(set, func(a string) bool { _, has := req.value(a); return !has })
		if i < 0 {
			return ""
		}
		missing = append(missing, "no attribute "+attributeText(set[i]))
	}
	if len(missing) > 0 {
		return "the request has " + strings.Join(slices.Compact(missing), " and ")
	}
	return ""
}

// mismatch says why c does not hold for req.
func (c *Condition) mismatch(req *Request) string {
	value, present := req.value(c.Attribute)
	switch {
	case !present:
		return "the request has no attribute " + attributeText(c.Attribute)
	case c.Absent:
		return fmt.Sprintf("%s is %s, not absent", attributeText(c.Attribute), problem.Quote(value))
	}
	const most = 5
	var wanted []string
	for _, p := range c.AnyOf[:min(most, len(c.AnyOf))] {
		wanted = append(wanted, problem.Quote(p))
	}
	text := strings.Join(wanted, " or ")
	if n := len(c.AnyOf) - most; n > 0 {
		text += fmt.Sprintf(" or one of %d more", n)
	}
	return fmt.Sprintf("%s is %s, not %s", attributeText(c.Attribute), problem.Quote(value), text)
}

// dropped says which of the matching rules keeps r, which is one of them, from
// applying, or nothing.
func dropped(r *Rule, matching []*Rule) string {
	by := func(r *Rule) *Rule { // one that replaces r, or nil
		i := slices.IndexFunc(matching, func(other *Rule) bool { return slices.Contains(other.replacedRules, r) })
		if i < 0 {
			return nil
		}
		return matching[i]
	}
	if other := by(r); other != nil {
		return "replaced by rule " + problem.Quote(other.ID)
	}
	if r.Unlimited || r.blocks() {
		return ""
	}
	for _, other := range matching {
		if other.Unlimited && len(other.Replaces) == 0 && by(other) == nil {
			return fmt.Sprintf("rule %s exempts the request", problem.Quote(other.ID))
		}
	}
	return ""
}

// attributeText quotes the name of an attribute unless it is plain.
func attributeText(name string) string {
	if strings.Trim(name, problem.NameBytes) != "" {
		return problem.Quote(name)
	}
	return name
}
