package rules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/rules/internal/counter"
)

// Descriptors survive being written as documents, as a file, and as JSON.
func TestDescriptorsRoundTrip(t *testing.T) {
	const text = `
domain: d
descriptors:
  - key: a
    value: "*x"
    share_threshold: true
    shadow_mode: true
    quota_mode: true
    detailed_metric: true
    value_to_metric: true
    metadata: {name: s, n: 1, half: 0.5, on: true, none: null, list: [1, {a: b}], day: 2026-01-01, 7: seven}
    rate_limit: {name: n, replaces: [{name: m}, {name: o}], unit: week, requests_per_unit: 4294967295}
    descriptors: [{key: b, rate_limit: {unlimited: true}}, {key: c}]
  - {key: z, rate_limit: {unit: day, requests_per_unit: 0}}
---
domain: e
rules: [{id: r, limits: [{limit: 1, window: 1m}]}]
`
	set := parse(t, text)
	docs := set.Documents()
	file, err := Format(docs)
	if err != nil {
		t.Fatal(err)
	}
	value, err := json.Marshal(docs)
	if err != nil {
		t.Fatal(err)
	}
	var decoded []Document
	if err := json.Unmarshal(value, &decoded); err != nil {
		t.Fatal(err)
	}
	stored, err := Compile("f", decoded)
	if err != nil {
		t.Fatal(err)
	}
	for _, again := range []*Set{parse(t, string(file)), stored} {
		if again.Hash() != set.Hash() || !reflect.DeepEqual(again.Documents(), docs) {
			t.Errorf("%+v\nwant %+v\n%s", again.Documents(), docs, file)
		}
	}
	rule, _ := set.Descriptors("d").Match(testHasher, []Attribute{{Key: "a", Value: "xx"}})
	d := rule.Descriptor
	got := envoy.Descriptor{
		Name: d.Name, Replaces: d.Replaces, Requests: d.Requests, Unit: d.Unit, Shadow: d.Shadow, Quota: d.Quota,
		Metadata: d.Metadata, Salt: d.Salt, Path: d.Path,
	}
	want := envoy.Descriptor{
		Name: "n", Replaces: []string{"m", "o"}, Requests: 4294967295, Unit: 7, Shadow: true, Quota: true,
		Metadata: map[string]any{
			"name": "s", "n": 1.0, "half": 0.5, "on": true, "none": nil, "list": []any{1.0, map[string]any{"a": "b"}},
			"day": "2026-01-01", "7": "seven",
		},
		Salt: counter.Salt(rule.Limits[0]),
		Path: []envoy.PathEntry{{Key: "a", Value: "*x"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if rule.Limits[0].Limit != algorithms.MaxLimit || rule.OnFailure != FailLocal || rule.Enforce != 0 {
		t.Errorf("%+v", rule)
	}
}

func TestDescriptorsChangeTheRevision(t *testing.T) {
	text := "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	set := parse(t, text)
	for _, other := range []string{
		strings.ReplaceAll(text, "1", "2"), strings.ReplaceAll(text, "key: a", "key: b"), text + "- {key: b}\n", "domain: d\ndescriptors: []\n",
	} {
		if parse(t, other).Hash() == set.Hash() {
			t.Errorf("has the same hash:\n%s", other)
		}
	}
	sliding, err := Options{Envoy: envoy.Options{Algorithm: algorithms.SlidingWindow}}.Parse("f", []byte(text))
	if err != nil || sliding.Hash() == set.Hash() {
		t.Errorf("with another algorithm the hash is the same, %v", err)
	}
	diff := Diff(set, parse(t, strings.ReplaceAll(text, "per_unit: 1", "per_unit: 2")))
	if len(diff.Changed) != 1 || fmt.Sprint(diff.Changed[0].Details()) != "[{limits[0].limit 1 2} {descriptor.rate_limit.requests_per_unit 1 2}]" {
		t.Errorf("%+v", diff)
	}
}

// All problems are told, each in its place.
func TestDescriptorProblemsOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"a.yaml": "domain: a\ndescriptors:\n- key: k\n  rate_limit:\n    unit: foo\n    requests_per_unit: 1\n- key: k\n",
		"b.yaml": "domain: a\ndescriptors: []\n",
	})
	_, err := Load(dir)
	want := dir + `/a.yaml:5:11: rule "k": rate_limit.unit: invalid rate limit unit "foo"; known are second, minute, hour, day, month, year, week` + "\n" +
		dir + `/a.yaml:7:3: rule "k": duplicate descriptor composite key "k"` + "\n" +
		dir + `/b.yaml:1:1: domain: duplicate domain "a" in config file, first at ` + dir + `/a.yaml:1; to put them together, see merge-domains`
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// A document of a domain alone is a domain without limits where files are chosen as in
// envoyproxy/ratelimit. Elsewhere it lacks its rules.
func TestDomainWithoutRules(t *testing.T) {
	for _, c := range []struct {
		text  string
		files Files
		want  string
	}{
		{"domain: d\n", AllFiles, ""},
		{"domain: d\n", RuntimeFiles, ""},
		{"domain: d\n", YAMLFiles, "f.yaml:1:1: rules: is missing"},
		{"domain:\n", AllFiles, "f.yaml:1:8: domain: config file cannot have empty domain"},
		{"", AllFiles, "f.yaml:1:1: the file is empty; for no rules, write {domain: default, rules: []}"},
		{"# nothing\n", AllFiles, "f.yaml:1:1: the file is empty; for no rules, write {domain: default, rules: []}"},
		{"domain: d\nrules: []\n", AllFiles, ""},
	} {
		set, err := Options{Files: c.files}.Parse("f.yaml", []byte(c.text))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q as %v: %s\nwant %s", c.text, c.files, got, c.want)
		}
		if err == nil && set.HasDomain("d") == strings.Contains(c.text, "rules") {
			t.Errorf("%q as %v: has the domain: %t", c.text, c.files, set.HasDomain("d"))
		}
	}
}

// Without descriptors, the other rules stay as they are: read in the same way, and with what a file could not have any more.
func TestWithoutDescriptors(t *testing.T) {
	how := Options{Envoy: envoy.Options{Algorithm: algorithms.GCRA}}
	text := parse(t, "domain: d\nrules: [{id: b, limits: [{limit: 1, window: 1s}]}]\n")
	if rest, domains, err := text.WithoutDescriptors(); rest != text || len(domains) > 0 || err != nil {
		t.Errorf("%v, %q, %v, want the same set", rest, domains, err)
	}
	rules := []Spec{spec("a//b", 1), spec("c", 2)} // no path can hold the first name
	set, err := how.compileStored("stored", []Document{
		{Domain: "d", Rules: rules},
		{Domain: "edge", Descriptors: []envoy.Spec{{Key: "user", RateLimit: &envoy.RateLimitSpec{Unit: "minute", RequestsPerUnit: 6}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	rest, domains, err := set.WithoutDescriptors()
	if err != nil || !slices.Equal(domains, []string{"edge"}) || rest.Len() != 2 || rest.Options() != how || rest.HasDomain("edge") {
		t.Fatalf("%+v, %q, %v", rest, domains, err)
	}
	if got := rest.Documents(); len(got) != 1 || !reflect.DeepEqual(got[0].Rules, rules) {
		t.Errorf("%+v", got)
	}
}
