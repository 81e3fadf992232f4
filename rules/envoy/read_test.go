package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/rules/envoy"
)

// oneDescriptor returns a document with one descriptor in line 3.
func oneDescriptor(d string) string { return fmt.Sprintf("domain: d\ndescriptors:\n- %s\n", d) }

func TestDescriptorsDocumentProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"descriptors:\n", `f.yaml:1:1: domain: config file cannot have empty domain`},
		{"domain:\ndescriptors:\n", `f.yaml:1:8: domain: config file cannot have empty domain`},
		{"domain: ''\ndescriptors: []\n", `f.yaml:1:9: domain: config file cannot have empty domain`},
		{"domain: 1.5\ndescriptors: []\n", `f.yaml:1:9: domain: error checking config: "1.5" is a number with a fraction, not text; put it in quotes`},
		{"domain: [d]\ndescriptors: []\n", "f.yaml:1:9: domain: is not text\nf.yaml:1:9: domain: config file cannot have empty domain"},
		{"domain: " + strings.Repeat("d", 1025) + "\ndescriptors: []\n", `f.yaml:1:9: domain: "` + strings.Repeat("d", 64) + `"... has 1025 bytes, more than 1024`},
		{"0.25: d\ndescriptors: []\n", "f.yaml:1:1: config error, key is not of type string: \"0.25\"\nf.yaml:1:1: domain: config file cannot have empty domain"},
		{"domain: d\ndescriptor: []\n", `f.yaml:2:1: config error, unknown key "descriptor"; did you mean "descriptors"?`},
		{"domain: d\nversion: 1\ndescriptors: []\n", `f.yaml:2:1: config error, unknown key "version"; known are descriptors, detailed_metric, domain, key, metadata, name, quota_mode, rate_limit, replaces, requests_per_unit, shadow_mode, share_threshold, unit, unlimited, value, value_to_metric`},
		{"domain: d\ndescriptors: {}\n", `f.yaml:2:14: descriptors: is not a list`},
		{"domain: d\ndescriptors:\n- a\n- [b]\n", "f.yaml:3:3: descriptors[0]: config error, yaml file contains list of type other than map: \"a\"\nf.yaml:4:3: descriptors[1]: config error, yaml file contains list of type other than map: \"\""},
		{"domain: d\ndescriptors: []\n---\ndomain: d\ndescriptors: []\n", `f.yaml:4:1: domain: duplicate domain "d" in config file, first at f.yaml:1; to put them together, see merge-domains`},
		{"domain: d\ndescriptors: []\n---\ndomain: d\nrules: [{id: r, limits: [{limit: 1, window: 1s}]}]\n", `f.yaml:5:9: rule "r": domain "d" has descriptors too, at f.yaml:1; a domain has either rules or descriptors`},
		{"domain: d\nrules: []\ndescriptors: []\n", `f.yaml:1:1: domain "d" has both rules and descriptors; a domain has either`},
	} {
		refused(t, c.text, c.want)
	}
}

func TestDescriptorProblems(t *testing.T) {
	const limit = "rate_limit: {unit: day, requests_per_unit: 5}"
	for _, c := range []struct{ descriptor, want string }{
		{`{value: v}`, `f.yaml:3:3: descriptors[0].key: descriptor has empty key`},
		{`{key: , value: v}`, `f.yaml:3:9: descriptors[0].key: descriptor has empty key`},
		{`{key: [k]}`, "f.yaml:3:9: descriptors[0].key: is not text\nf.yaml:3:9: descriptors[0].key: descriptor has empty key"},
		{`{key: k, value: 1.5}`, `f.yaml:3:19: rule "k_1.5": value: error checking config: "1.5" is a number with a fraction, not text; put it in quotes`},
		{`{key: k, value: {a: b}}`, `f.yaml:3:19: rule "k": value: is not text`},
		{`{key: k, value: ` + strings.Repeat("v", 1025) + `}`, `f.yaml:3:19: rule "k_` + strings.Repeat("v", 62) + `"...: value: "` + strings.Repeat("v", 64) + `"... has 1025 bytes, more than 1024`},
		{`{key: k, ratelimit: {unit: day, requests_per_unit: 5}}`, `f.yaml:3:12: rule "k": config error, unknown key "ratelimit"; did you mean "rate_limit"?`},
		{`{key: k, rate_limit: {unit: day, requestsperunit: 5}}`, `f.yaml:3:36: rule "k": rate_limit: config error, unknown key "requestsperunit"; did you mean "requests_per_unit"?`},
		{`{key: k, [a]: b}`, `f.yaml:3:12: rule "k": config error, key is not of type string: ""`},
		{`{key: k, rate_limit: 5}`, `f.yaml:3:24: rule "k": rate_limit: config error, yaml file contains "5" instead of a mapping`},
		{`{key: k, rate_limit: []}`, `f.yaml:3:24: rule "k": rate_limit: config error, yaml file contains a list instead of a mapping`},
		{`{key: k, rate_limit: {unit: foo, requests_per_unit: 5}}`, `f.yaml:3:31: rule "k": rate_limit.unit: invalid rate limit unit "foo"; known are second, minute, hour, day, month, year, week`},
		{`{key: k, rate_limit: {requests_per_unit: 5}}`, `f.yaml:3:24: rule "k": rate_limit.unit: invalid rate limit unit ""; known are second, minute, hour, day, month, year, week`},
		{`{key: k, rate_limit: {unit: unknown, requests_per_unit: 5}}`, `f.yaml:3:31: rule "k": rate_limit.unit: invalid rate limit unit "unknown"; known are second, minute, hour, day, month, year, week`},
		{`{key: k, rate_limit: {unit: day, requests_per_unit: -1}}`, `f.yaml:3:55: rule "k": rate_limit.requests_per_unit: "-1" is not a whole number between 0 and 4294967295`},
		{`{key: k, rate_limit: {unit: day, requests_per_unit: 4294967296}}`, `f.yaml:3:55: rule "k": rate_limit.requests_per_unit: "4294967296" is not a whole number between 0 and 4294967295`},
		{`{key: k, rate_limit: {unit: day, requests_per_unit: 1.5}}`, `f.yaml:3:55: rule "k": rate_limit.requests_per_unit: "1.5" is not a whole number between 0 and 4294967295`},
		{`{key: k, rate_limit: {unit: day, requests_per_unit: "5"}}`, `f.yaml:3:55: rule "k": rate_limit.requests_per_unit: "5" is not a whole number between 0 and 4294967295`},
		{`{key: k, rate_limit: {unlimited: true, unit: day}}`, `f.yaml:3:24: rule "k": rate_limit: should not specify rate limit unit when unlimited`},
		{`{key: k, rate_limit: {unit: day, requests_per_unit: 5, replaces: [{name: }]}}`, `f.yaml:3:69: rule "k": rate_limit.replaces[0]: should not have an empty replaces entry; write {name: NAME}`},
		{`{key: k, rate_limit: {unit: day, requests_per_unit: 5, replaces: [x]}}`, `f.yaml:3:69: rule "k": rate_limit.replaces[0]: config error, yaml file contains list of type other than map: "x"`},
		{`{key: k, rate_limit: {unit: day, requests_per_unit: 5, name: n, replaces: [{name: n}]}}`, `f.yaml:3:24: rule "k": rate_limit.replaces: replaces should not contain name of same descriptor: "n"`},
		{`{key: k, value: v, share_threshold: true, ` + limit + `}`, `f.yaml:3:3: rule "k_v": share_threshold: share_threshold can only be used with wildcard values (containing '*'), but found key "k_v"`},
		{`{key: k, share_threshold: true}`, `f.yaml:3:3: rule "k": share_threshold: share_threshold can only be used with wildcard values (containing '*'), but found key "k"`},
		{`{key: k, shadow_mode: 1}`, `f.yaml:3:25: rule "k": shadow_mode: "1" is not true or false`},
		{`{key: k, quota_mode: "true"}`, `f.yaml:3:24: rule "k": quota_mode: "true" is not true or false`},
		{`{key: k, detailed_metric: maybe}`, `f.yaml:3:29: rule "k": detailed_metric: "maybe" is not true or false`},
		{`{key: k, value_to_metric: []}`, `f.yaml:3:29: rule "k": value_to_metric: "" is not true or false`},
		{`{key: k, metadata: [a]}`, `f.yaml:3:22: rule "k": metadata: error parsing metadata: is not a mapping`},
		{`{key: k, metadata: {a: {b: .inf}}}`, `f.yaml:3:30: rule "k": metadata.a.b: error parsing metadata: ".inf" is not a finite number`},
		{`{key: k, metadata: ` + strings.Repeat("{a: ", 40) + "b" + strings.Repeat("}", 40) + `}`, `f.yaml:3:154: rule "k": metadata` + strings.Repeat(".a", 33) + `: error parsing metadata: more than 100000 values in all, or one in the other more than 32 deep`},
		{`{key: k, descriptors: [{key: s}, {key: s}]}`, `f.yaml:3:36: rule "k.s": duplicate descriptor composite key "k.s"`},
		{"{key: k, value: v}\n- {key: k, value: v}", `f.yaml:4:3: rule "k_v": duplicate descriptor composite key "k_v"`},
		{"{key: k_v}\n- {key: k, value: v}", `f.yaml:4:3: rule "k_v": duplicate descriptor composite key "k_v"`},
		{"{key: k, <<: 5}", `f.yaml:3:12: rule "k": a merge key takes a mapping, and at most 16 one in the other`},
		{"&x {key: k, descriptors: [*x]}", `f.yaml:3:28: rule "` + strings.Repeat("k.", 15) + `k": descriptors: the descriptors stand one in the other more than 16 deep, and no request has so many entries`},
		{"&x {key: k, <<: *x}", `f.yaml:3:15: rule "k": a merge key takes a mapping, and at most 16 one in the other`},
	} {
		refused(t, oneDescriptor(c.descriptor), c.want)
	}
}

func TestMergedDomains(t *testing.T) {
	const text = "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n---\ndomain: d\ndescriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 2}}]\n"
	set, err := rules.Options{Envoy: envoy.Options{Merge: true}}.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := ruleNames(set); got != "d/a d/b" {
		t.Error(got)
	}
	_, err = rules.Options{Envoy: envoy.Options{Merge: true}}.Parse("f.yaml", []byte(text+"---\ndomain: d\ndescriptors: [{key: a}]\n"))
	if want := `f.yaml:8:15: rule "a": duplicate descriptor composite key "a"`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// What the reference passes over.
func TestDescriptorWarnings(t *testing.T) {
	for _, c := range []struct{ descriptor, want string }{
		{`{key: k, rate_limit: {unit: day, requests_per_unit: 5, shadow_mode: true}}`, `f.yaml:3:58: rule "k": rate_limit: "shadow_mode" is ignored here, as it belongs to a descriptor`},
		{`{key: k, unit: day}`, `f.yaml:3:12: rule "k": "unit" is ignored here, as it belongs to rate_limit`},
		{`{key: k, domain: e}`, `f.yaml:3:12: rule "k": "domain" is ignored here, as it belongs to the document`},
		{`{key: k, rate_limit: {unit: day}}`, `f.yaml:3:24: rule "k": rate_limit: requests_per_unit is missing, and so 0: every request is denied`},
		{`{key: j, value: v, key: k}`, `f.yaml:3:22: rule "j_v": key "key" stands here twice, first in line 3; the last one counts`},
		{`{key: k, rate_limit: {unlimited: true, unit: unknown, requests_per_unit: 5}}`, ``},
		{`{key: k, rate_limit: , metadata: , value: ~, shadow_mode: , descriptors: }`, ``},
		{`{key: k, shadow_mode: yes, quota_mode: off, detailed_metric: False, value_to_metric: on}`, ``},
		{`{key: k, rate_limit: {unit: day, requests_per_unit: 1_000, replaces: , name: }}`, ``},
		{`{<<: {key: j, value: v}, key: k}`, ``},
	} {
		var got []string
		for _, w := range parse(t, oneDescriptor(c.descriptor)).Warnings() {
			got = append(got, w.String())
		}
		if text := strings.Join(got, "\n"); text != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.descriptor, text, c.want)
		}
	}
}

// Files may use what YAML has to write less.
func TestDescriptorAliases(t *testing.T) {
	set := parse(t, `
domain: d
descriptors:
  - key: a
    rate_limit: &hourly {unit: hour, requests_per_unit: 7}
  - key: b
    rate_limit: *hourly
  - key: c
    rate_limit: {<<: *hourly, requests_per_unit: 8}
  - key: d
    rate_limit: {<<: [{unit: day}, *hourly]}
`)
	var got []string
	for r := range set.Rules() {
		got = append(got, fmt.Sprintf("%s %d/%v", r.ID, r.Descriptor.Requests, r.Descriptor.Unit))
	}
	if text := strings.Join(got, ", "); text != "a 7/hour, b 7/hour, c 8/hour, d 7/day" {
		t.Error(text)
	}
}

// A short text cannot stand for more than a set may hold.
func TestDescriptorBombs(t *testing.T) {
	bomb := func(first, next string) string {
		text := "x0: &x0 " + first + "\n"
		for i := range 7 {
			text += fmt.Sprintf("x%d: &x%d ", i+1, i+1) + strings.ReplaceAll(next, "*", fmt.Sprintf("*x%d", i)) + "\n"
		}
		return text
	}
	for text, want := range map[string]string{
		bomb("[{key: a}]", "[{key: a, descriptors: *}, {key: b, descriptors: *}, {key: c, descriptors: *}, {key: d, descriptors: *}, {key: e, descriptors: *}, {key: f, descriptors: *}, {key: g, descriptors: *}]") +
			"domain: d\ndescriptors: *x7\n": "is one more than the 100000 descriptors that a set may have",
		bomb("[a]", "[*, *, *, *, *, *, *]") +
			"domain: d\ndescriptors: [{key: k, metadata: {a: *x7}}]\n": "error parsing metadata: more than 100000 values in all, or one in the other more than 32 deep",
		bomb("{k: v}", "{<<: [*, *, *, *, *, *, *, *, *, *, *, *]}") + "domain: d\ndescriptors: [*x7]\n":                                                   "the aliases so far stand for more than 2097152 elements",
		"x: &x [" + strings.Repeat("a,", 50_000) + "]\ny: &y {key: k, descriptors: *x}\ndomain: d\ndescriptors: [" + strings.Repeat("*y,", 50_000) + "]\n": " more",
	} {
		if _, err := rules.Parse("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.300v\nwant %s", err, want)
		}
	}
}
