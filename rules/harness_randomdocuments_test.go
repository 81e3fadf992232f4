package rules

import (
	"fmt"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
)

// What generated rules and requests are made of: few values, so that they meet.
var (
	someAttributes = []string{"a", "b", "ip"}
	someValues     = []string{"", "/", "/x", "/x/", "/x/y", "/xy", "/y", "x", "y"}
	somePatterns   = []string{"", "/", "/x", "/x/y", "x", "y", "/*", "/x*", "/x/*", "/x/y*", "x*", "re:/?[xy]", "re:.*y"}

	// someIPs are addresses as requests may write them, and their canonical forms.
	someIPs = map[string]string{
		"10.0.0.1":                    "10.0.0.1",
		"10.0.0.1:80":                 "10.0.0.1",
		"::ffff:10.0.0.1":             "10.0.0.1",
		"[::FFFF:a00:1]:65535":        "10.0.0.1",
		"10.1.0.0":                    "10.1.0.0",
		"255.255.255.255":             "255.255.255.255",
		"2001:db8::1":                 "2001:db8::1",
		"2001:0DB8:0:0:0:0:0:1":       "2001:db8::1",
		"[2001:db8::1]":               "2001:db8::1",
		"[2001:db8::1%eth0]:443":      "2001:db8::1",
		"2001:db8::2":                 "2001:db8::2",
		"2001:db8:0:1::":              "2001:db8:0:1::",
		"fe80::1%eth0":                "fe80::1",
		"::":                          "::",
		"1111:2222:3333:4444:5:6:7:8": "1111:2222:3333:4444:5:6:7:8",
	}
	someNoIPs      = []string{"", "unknown", "10.0.0", "10.0.0.1:", "10.0.0.1:x", "10.0.0.1:999999", "[10.0.0.1", "10.0.0.1%eth0", "[::1]80", "::1::"}
	someIPPatterns = []string{"10.0.0.1", "::ffff:10.0.0.1", "2001:DB8::1", "unknown", "10.*", "10.0*", "re:.*:.*", "2001:db8::*", "0.0.0.0/0", "10.0.0.0/8",
		"10.0.0.0/24", "10.0.0.1/32", "255.255.255.255/32", "::/0", "2001:db8::/32", "2001:db8::/64", "2001:db8::2/127", "fe80::/10"}
)

// someLimits has the forms of a limit, and each algorithm.
var someLimits = slices.Concat([]LimitSpec{
	{Limit: 9, Window: "1h"},
	{Limit: 9, Window: "3600s", Algorithm: "sliding_window"},
	{Limit: 9, Window: "1s", Algorithm: "fixed_window"},
	{Limit: 9, Calendar: &CalendarSpec{Calendar: "month", Timezone: "Europe/Paris", Anchor: 15}, Algorithm: "fixed_window"},
	{Limit: 9, Calendar: &CalendarSpec{Calendar: "month", Timezone: "America/Argentina/Ushuaia"}, Algorithm: "fixed_window"},
	{Limit: 9, Calendar: &CalendarSpec{Calendar: "week", Anchor: 7}, Algorithm: "fixed_window"},
	{Limit: 9, Calendar: &CalendarSpec{Calendar: "day", Timezone: "Etc/GMT+5"}, Algorithm: "fixed_window"},
	{Limit: 9, Calendar: &CalendarSpec{Calendar: "quarter", Timezone: "UTC", Anchor: 5}, Algorithm: "fixed_window"},
	{Limit: 9, Window: "1s", Buckets: 60, Algorithm: "sliding_window_buckets"},
	{Limit: 9, Window: "1s", Buckets: 7, Algorithm: "sliding_window_buckets"},
}, limitPerAlgorithm())

func limitPerAlgorithm() (all []LimitSpec) {
	for _, name := range algorithms.Names() {
		all = append(all, LimitSpec{Limit: 9, Window: "2s", Algorithm: name})
	}
	return all
}

func someRequest(t *rapid.T) *Request {
	req := &Request{Domain: rapid.SampledFrom([]string{"d", "d", "e", "f"}).Draw(t, "domain")}
	ips := append(slices.Sorted(maps.Keys(someIPs)), someNoIPs...)
	for _, a := range rapid.Permutation(someAttributes).Draw(t, "order") {
		values := someValues
		if a == IPAttribute {
			values = ips
		}
		if rapid.IntRange(0, 3).Draw(t, "has") > 0 {
			req.Attributes = append(req.Attributes, Attribute{Key: a, Value: rapid.SampledFrom(values).Draw(t, "value")})
		}
	}
	return req
}

// someDocuments generates the rules of two domains, all valid.
func someDocuments(t *rapid.T) []Document {
	var docs []Document
	for _, domain := range []string{"d", "e"} {
		doc := Document{Domain: domain}
		for range rapid.IntRange(1, 12).Draw(t, "rules") {
			doc.Rules = append(doc.Rules, someSpec(t, doc.Rules))
		}
		docs = append(docs, doc)
	}
	return docs
}

// rarely is true once in n times.
func rarely(t *rapid.T, n int, what string) bool { return rapid.IntRange(1, n).Draw(t, what) == n }

// someSpec generates a rule, which may refer to those before it.
func someSpec(t *rapid.T, before []Spec) Spec {
	s := Spec{ID: fmt.Sprint("r", len(before)), Unlimited: rarely(t, 8, "unlimited")}
	if len(before) > 0 && rarely(t, 4, "replaces") {
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom(before), 1, 2, func(s Spec) string { return s.ID })
		for _, other := range ids.Draw(t, "replaced") {
			s.Replaces = append(s.Replaces, other.ID)
		}
	}
	if rarely(t, 10, "off") {
		s.Enabled = new(false)
	}
	if !s.Unlimited {
		someCounting(t, &s, before)
	}
	needed := slices.Concat(s.Per...)
	for _, a := range someAttributes {
		if !rapid.Bool().Draw(t, "has "+a) {
			continue
		}
		if c := someCondition(t, a); !c.Absent || !slices.Contains(needed, a) { // otherwise it could never match
			if s.When == nil {
				s.When = make(map[string]ConditionSpec)
			}
			s.When[a] = c
		}
	}
	return s
}

// someCounting generates what says how a rule counts.
func someCounting(t *rapid.T, s *Spec, before []Spec) {
	set := rapid.SliceOfNDistinct(rapid.SampledFrom(someAttributes), 1, 2, rapid.ID[string])
	switch rapid.IntRange(0, 4).Draw(t, "sets") {
	case 0, 1:
	case 2:
		s.Per = [][]string{{"a"}, {"b", "ip"}, {"ip"}}
	default:
		s.Per = [][]string{set.Draw(t, "set")}
	}
	if slices.Contains(slices.Concat(s.Per...), "ip") {
		s.IPv6Prefix = rapid.SampledFrom([]int64{0, 1, 56, 64, 127, 128}).Draw(t, "bits")
	}
	s.Limits = []LimitSpec{{Limit: rapid.SampledFrom([]int64{0, 1, 15}).Draw(t, "limit"), Window: "1s"}}
	if rapid.Bool().Draw(t, "two limits") {
		s.Limits = append(s.Limits, rapid.SampledFrom(someLimits).Draw(t, "second"))
	}
	if rarely(t, 5, "delays") {
		s.Limits = []LimitSpec{{Limit: 15, Window: "1s", Algorithm: rapid.SampledFrom(algorithms.NamesOf(algorithms.Algorithm.Drains)).Draw(t, "algorithm")}}
		s.MaxDelay = rapid.SampledFrom([]string{"0s", "1ns", "2s", "1d"}).Draw(t, "delay")
	}
	if rarely(t, 3, "rolls out") {
		s.Enforce = new(rapid.SampledFrom([]int64{0, 50, 100}).Draw(t, "enforce"))
	}
	s.Cost = rapid.SampledFrom([]string{"", "", "0", "1", "7", "size"}).Draw(t, "cost")
	s.Durability = rapid.SampledFrom([]string{"", "relaxed", "strict"}).Draw(t, "durability")
	s.OnFailure = rapid.SampledFrom([]string{"", "allow", "local", "deny"}).Draw(t, "on failure")
	switch rapid.IntRange(0, 3).Draw(t, "mode") {
	case 0:
		s.Mode = &ModeSpec{Soft: &SoftSpec{Over: rapid.SampledFrom([]string{"10%", "1%", "1000%"}).Draw(t, "over")}}
	case 1:
		parents := slices.DeleteFunc(slices.Clone(before), func(p Spec) bool { return p.Unlimited || p.Enabled != nil })
		if len(parents) > 0 {
			parent := rapid.SampledFrom(parents).Draw(t, "parent").ID
			s.Mode = &ModeSpec{Elastic: &ElasticSpec{parent, rapid.SampledFrom([]string{"101%", "150%", "1000%"}).Draw(t, "up to")}}
		}
	}
}

func someCondition(t *rapid.T, attribute string) ConditionSpec {
	pattern := rapid.SampledFrom(somePatterns)
	if attribute == IPAttribute {
		pattern = rapid.SampledFrom(someIPPatterns)
	}
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
