package rules

import (
	"fmt"

	"pgregory.net/rapid"
)

// What generated rules and requests are made of: few values, so that they meet.
var (
	someAttributes = []string{"a", "b", "c"}
	someValues     = []string{"", "/", "/x", "/x/", "/x/y", "/xy", "/y", "x", "y"}
	somePatterns   = []string{"", "/", "/x", "/x/y", "x", "y", "/*", "/x*", "/x/*", "/x/y*", "x*", "re:/?[xy]", "re:.*y"}
)

// someDocuments generates the rules of two domains, all valid.
func someDocuments(t *rapid.T) []Document {
	var docs []Document
	for _, domain := range []string{"d", "e"} {
		doc := Document{Domain: domain}
		for i := range rapid.IntRange(1, 12).Draw(t, "rules") {
			doc.Rules = append(doc.Rules, someSpec(t, i))
		}
		docs = append(docs, doc)
	}
	return docs
}

func someSpec(t *rapid.T, number int) Spec {
	s := Spec{ID: fmt.Sprint("r", number)}
	set := func(least int) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(someAttributes), least, 2, rapid.ID[string]).Draw(t, "set")
	}
	switch rapid.IntRange(0, 3).Draw(t, "sets") {
	case 0:
	case 1:
		s.Per = [][]string{{"a"}, {"b", "c"}, {"c"}}
	default:
		if one := set(0); len(one) > 0 {
			s.Per = [][]string{one}
		}
	}
	needed := make(map[string]bool)
	for _, set := range s.Per {
		for _, a := range set {
			needed[a] = true
		}
	}
	for _, a := range someAttributes {
		if !rapid.Bool().Draw(t, "has "+a) {
			continue
		}
		if c := someCondition(t); !c.Absent || !needed[a] { // otherwise it could never match
			if s.When == nil {
				s.When = make(map[string]ConditionSpec)
			}
			s.When[a] = c
		}
	}
	s.Limits = []LimitSpec{{Limit: 1, Window: "1s"}}
	if rapid.Bool().Draw(t, "two limits") {
		s.Limits = append(s.Limits, LimitSpec{Limit: 9, Window: "1h"})
	}
	if rapid.IntRange(0, 9).Draw(t, "off") == 0 {
		s.Enabled = new(bool)
	}
	return s
}

func someCondition(t *rapid.T) ConditionSpec {
	pattern := rapid.SampledFrom(somePatterns)
	switch rapid.IntRange(0, 5).Draw(t, "kind") {
	case 0:
		return ConditionSpec{AnyOf: []string{"*"}}
	case 1:
		return ConditionSpec{Absent: true}
	case 2, 3:
		return ConditionSpec{AnyOf: rapid.SliceOfNDistinct(pattern, 1, 5, rapid.ID[string]).Draw(t, "list")}
	}
	return ConditionSpec{AnyOf: []string{pattern.Draw(t, "pattern")}}
}

// pretty is what messages of failed tests show.
func pretty(docs []Document) string {
	text, err := Format(docs)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
