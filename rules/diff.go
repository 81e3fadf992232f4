package rules

import (
	"reflect"
	"strings"
)

// Changes says how the rules of two sets differ, by domain and id.
type Changes struct {
	// Added are the rules that only the new set has, in its order.
	Added []NamedSpec
	// Changed are those that both have and that differ, in the new set's order.
	Changed []Change
	// Removed are those that only the old set has, in its order.
	Removed []NamedSpec
	// Unchanged is how many both have alike.
	Unchanged int
}

// NamedSpec is a rule with its domain.
type NamedSpec struct {
	Domain string
	Spec   Spec
}

// Change is a rule that has changed.
type Change struct {
	Domain   string
	Old, New Spec
	// Fields are the keys of the rule that differ, in the order of Spec.
	Fields []string
}

// Diff compares rules as Rule.Spec returns them: what was only written otherwise
// is no change, nor is the order of rules.
func Diff(before, after *Set) Changes {
	var c Changes
	old, current := before.byName(), after.byName()
	for _, r := range after.rules {
		was := old[ruleName{r.Domain, r.ID}]
		if was == nil {
			c.Added = append(c.Added, NamedSpec{r.Domain, r.Spec()})
			continue
		}
		change := Change{Domain: r.Domain, Old: was.Spec(), New: r.Spec()}
		if change.Fields = differing(change.Old, change.New); len(change.Fields) == 0 {
			c.Unchanged++
			continue
		}
		c.Changed = append(c.Changed, change)
	}
	for _, r := range before.rules {
		if current[ruleName{r.Domain, r.ID}] == nil {
			c.Removed = append(c.Removed, NamedSpec{r.Domain, r.Spec()})
		}
	}
	return c
}

func (s *Set) byName() map[ruleName]*Rule {
	m := make(map[ruleName]*Rule, len(s.rules))
	for _, r := range s.rules {
		m[ruleName{r.Domain, r.ID}] = r
	}
	return m
}

// differing returns the keys of the fields in which a and b differ.
func differing(a, b Spec) []string {
	var keys []string
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			key, _, _ := strings.Cut(x.Type().Field(i).Tag.Get("json"), ",")
			keys = append(keys, key)
		}
	}
	return keys
}
