package rules

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// entriesOf reads key=value texts.
func entriesOf(texts ...string) []Attribute {
	var es []Attribute
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		es = append(es, Attribute{key, value})
	}
	return es
}

const treeText = `
domain: edge/one
descriptors:
  - key: key1
    value: value1
    descriptors:
      - key: subkey1
        rate_limit: {unit: second, requests_per_unit: 5}
      - key: subkey1
        value: subvalue1
        rate_limit: {unit: SECOND, requests_per_unit: 10, name: sub}
  - key: key2
    rate_limit: {unit: minute, requests_per_unit: 20}
  - key: key2
    value: value2
    rate_limit: {unit: Hour, requests_per_unit: 30}
    descriptors:
      - {key: more, rate_limit: {unit: week, requests_per_unit: 31}}
  - {key: key2, value: value3}
  - {key: wild, value: "foo*", rate_limit: {unit: day, requests_per_unit: 40}}
  - {key: wild, value: "f*", rate_limit: {unit: day, requests_per_unit: 41}}
  - {key: wild, value: "*bar*baz", rate_limit: {unit: day, requests_per_unit: 42}}
  - {key: wild, value: "foo1", rate_limit: {unit: day, requests_per_unit: 43}}
  - {key: wild, rate_limit: {unit: day, requests_per_unit: 44}}
  - {key: overlap, value: "ab*ba", rate_limit: {unit: day, requests_per_unit: 45}}
  - {key: twice, value: "*x*x*", rate_limit: {unit: day, requests_per_unit: 46}}
  - {key: ldap, rate_limit: {unlimited: true}}
  - {key: a_b, value: c, rate_limit: {unit: year, requests_per_unit: 50}}
  - {key: k, value: 404, rate_limit: {unit: month, requests_per_unit: 60}}
  - {key: yes, value: on, rate_limit: {unit: month, requests_per_unit: 61}}
`

// What each request leads to, as the reference's README and tests have it.
func TestDescriptorsMatch(t *testing.T) {
	set := parse(t, treeText)
	d := set.Descriptors("edge/one")
	for _, c := range []struct {
		entries []string
		want    string
	}{
		{nil, ""},
		{[]string{"key1=value1"}, ""},
		{[]string{"key1=value1", "subkey1=x"}, "key1_value1.subkey1 5/second"},
		{[]string{"key1=value1", "subkey1=subvalue1"}, "key1_value1.subkey1_subvalue1 10/second"},
		{[]string{"key1=value1", "subkey1=subvalue1", "x=y"}, ""},
		{[]string{"key1=other", "subkey1=x"}, ""},
		{[]string{"subkey1=x", "key1=value1"}, ""},
		{[]string{"key2=x"}, "key2 20/minute"},
		{[]string{"key2="}, "key2 20/minute"},
		{[]string{"KEY2=x"}, ""},
		{[]string{"key2=value2"}, "key2_value2 30/hour"},
		{[]string{"key2=value2", "more=x"}, "key2_value2.more 31/week"},
		{[]string{"key2=value3"}, ""},
		{[]string{"key2=x", "more=x"}, ""},
		{[]string{"wild=foo1"}, "wild_foo1 43/day"},
		{[]string{"wild=foo2"}, "wild_foo* 40/day"},
		{[]string{"wild=foo"}, "wild_foo* 40/day"},
		{[]string{"wild=fo"}, "wild_f* 41/day"},
		{[]string{"wild=xbarybaz"}, "wild_*bar*baz 42/day"},
		{[]string{"wild=barbaz"}, "wild_*bar*baz 42/day"},
		{[]string{"wild=bar"}, "wild 44/day"},
		{[]string{"wild=baz"}, "wild 44/day"},
		{[]string{"overlap=aba"}, ""},
		{[]string{"overlap=abba"}, "overlap_ab*ba 45/day"},
		{[]string{"twice=x"}, ""},
		{[]string{"twice=yxxy"}, "twice_*x*x* 46/day"},
		{[]string{"ldap=x"}, "ldap unlimited"},
		{[]string{"a=b_c"}, "a_b_c 50/year"},
		{[]string{"k=404"}, "k_404 60/month"},
		{[]string{"yes=on"}, "yes_on 61/month"},
		{strings.Fields(strings.Repeat("key2=value2 ", maxDepth+1)), ""},
	} {
		rule, _ := d.Match(testHasher, entriesOf(c.entries...))
		got := ""
		switch {
		case rule == nil:
		case rule.Unlimited:
			got = rule.ID + " unlimited"
		default:
			got = fmt.Sprintf("%s %d/%v", rule.ID, rule.Descriptor.Requests, rule.Descriptor.Unit)
			want := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: int64(rule.Descriptor.Requests), Window: rule.Descriptor.Unit.Window()}
			if rule.Limits[0] != want {
				t.Errorf("%q is held against %+v, want %+v", c.entries, rule.Limits[0], want)
			}
		}
		if got != c.want {
			t.Errorf("%q leads to %q, want %q", c.entries, got, c.want)
		}
	}
	if set.Descriptors("edge") != nil || !set.HasDomain("edge/one") || set.HasDomain("edge") {
		t.Error("wrong domains")
	}
	if got := set.Match(testHasher, &Request{Domain: "edge/one", Attributes: entriesOf("key2=x")}, nil); got != nil {
		t.Errorf("Match finds %v", got)
	}
}

func TestUnits(t *testing.T) {
	for name, window := range map[string]time.Duration{
		"second": time.Second, "MINUTE": time.Minute, "Hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
		"month": 30 * 24 * time.Hour, "year": 365 * 24 * time.Hour,
	} {
		u := ParseUnit(name)
		if u == 0 || u.Window() != int64(window) || !strings.EqualFold(u.String(), name) {
			t.Errorf("%s: %v, %v", name, u, time.Duration(u.Window()))
		}
	}
	for _, name := range []string{"", "unknown", "fortnight", "seconds"} {
		if u := ParseUnit(name); u != 0 {
			t.Errorf("%q is %v", name, u)
		}
	}
	if Unit(99).Window() != 0 || Unit(99).String() != "unit(99)" {
		t.Error("unit 99")
	}
}

// Which requests count together.
func TestDescriptorCounters(t *testing.T) {
	d := parse(t, `
domain: d
descriptors:
  - {key: bare, rate_limit: {unit: second, requests_per_unit: 1}}
  - {key: own, value: "x*", rate_limit: {unit: second, requests_per_unit: 1}}
  - key: files
    value: "files/*"
    share_threshold: true
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - {key: files, value: "*.pdf", share_threshold: true, rate_limit: {unit: second, requests_per_unit: 1}}
      - {key: user, rate_limit: {unit: second, requests_per_unit: 1}}
`).Descriptors("d")
	key := func(texts ...string) ring.Key {
		rule, key := d.Match(testHasher, entriesOf(texts...))
		if rule == nil {
			t.Fatalf("%q leads nowhere", texts)
		}
		return key
	}
	for _, c := range []struct {
		a, b []string
		same bool
	}{
		{[]string{"bare=1"}, []string{"bare=1"}, true},
		{[]string{"bare=1"}, []string{"bare=2"}, false},
		{[]string{"own=x1"}, []string{"own=x2"}, false},
		{[]string{"files=files/a"}, []string{"files=files/b"}, true},
		{[]string{"files=files/a", "files=a.pdf"}, []string{"files=files/b", "files=b.pdf"}, true},
		{[]string{"files=files/a", "user=u"}, []string{"files=files/b", "user=u"}, true},
		{[]string{"files=files/a", "user=u"}, []string{"files=files/a", "user=v"}, false},
		{[]string{"files=files/a"}, []string{"files=files/a", "user=u"}, false},
	} {
		if same := key(c.a...) == key(c.b...); same != c.same {
			t.Errorf("%q and %q count together: %v, want %v", c.a, c.b, same, c.same)
		}
	}
	// The names of counters must never change: nodes of one cluster agree on them.
	name := "\x01d\x00\x05files\x07files/*\x04user\x01u"
	if want := testHasher.Key([]byte(name)).With(salt(Lyft{}.Limit(1, Second.Window()))); key("files=files/a", "user=u") != want {
		t.Error("the counter is not the one of its name")
	}
	// What a request overrides is counted where its entries are counted without that.
	second := Lyft{}.Limit(7, Second.Window())
	if got := OverrideKey(testHasher, "d", entriesOf("bare=1"), second); got != key("bare=1") {
		t.Error("an override has another counter")
	}
	minute := Lyft{}.Limit(7, (Second + 1).Window())
	if got := OverrideKey(testHasher, "d", entriesOf("bare=1"), minute); got == key("bare=1") {
		t.Error("an override with another unit has the same counter")
	}
	if got := OverrideKey(testHasher, "e", entriesOf("bare=1"), second); got == key("bare=1") {
		t.Error("another domain has the same counter")
	}
	sliding, err := Lyft{Algorithm: algorithms.SlidingWindow}.Parse("f", []byte("domain: d\ndescriptors: [{key: bare, rate_limit: {unit: second, requests_per_unit: 1}}]"))
	if err != nil {
		t.Fatal(err)
	}
	rule, other := sliding.Descriptors("d").Match(testHasher, entriesOf("bare=1"))
	if rule.Limits[0].Algorithm != algorithms.SlidingWindow || other == key("bare=1") {
		t.Errorf("%v", rule.Limits)
	}
}

// What metrics call the rules: the examples 8, 10 and 11 of the reference's README, and
// its tests of share_threshold with both kinds of names.
func TestDescriptorNames(t *testing.T) {
	d := parse(t, `
domain: m
descriptors:
  - {key: key1, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: key1, value: value1, rate_limit: {unit: minute, requests_per_unit: 20}}
  - key: route
    value_to_metric: true
    descriptors:
      - key: http_method
        value_to_metric: true
        descriptors:
          - {key: subject_id, rate_limit: {unit: minute, requests_per_unit: 60}}
  - key: user
    value_to_metric: true
    descriptors:
      - key: action
        value: read*
        value_to_metric: true
        descriptors: [{key: resource, rate_limit: {unit: minute, requests_per_unit: 100}}]
      - key: action
        value: write*
        descriptors: [{key: resource, rate_limit: {unit: minute, requests_per_unit: 100}}]
      - key: action
        value: list
        descriptors: [{key: resource, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 100}}]
  - key: api
    value: api/*
    share_threshold: true
    value_to_metric: true
    descriptors:
      - {key: method, rate_limit: {unit: minute, requests_per_unit: 60}}
      - {key: verb, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 60}}
`).Descriptors("m")
	for _, c := range []struct {
		entries []string
		want    string
	}{
		{[]string{"key1=unspecified"}, "m.key1_unspecified"},
		{[]string{"key1="}, "m.key1_"},
		{[]string{"key1=value1"}, "m.key1_value1"},
		{[]string{"route=api", "http_method=GET", "subject_id=123"}, "m.route_api.http_method_GET.subject_id"},
		{[]string{"user=alice", "action=readfile", "resource=documents"}, "m.user_alice.action_readfile.resource"},
		{[]string{"user=alice", "action=writefile", "resource=documents"}, "m.user_alice.action_write*.resource"},
		{[]string{"user=alice", "action=list", "resource=documents"}, "m.user_alice.action_list.resource_documents"},
		{[]string{"api=api/v1", "method=GET"}, "m.api_api/*.method"},
		{[]string{"api=api/v1", "verb=GET"}, "m.api_api/*.verb_GET"},
		{[]string{"api=api/v1", "verb="}, "m.api_api/*.verb"},
	} {
		rule, _ := d.Match(testHasher, entriesOf(c.entries...))
		if got := string(d.AppendName(nil, rule, entriesOf(c.entries...))); got != c.want {
			t.Errorf("%q: %s, want %s", c.entries, got, c.want)
		}
	}
}

// twin finds a descriptor as the reference's README describes it, and names its counter.
func twin(specs []DescriptorSpec, entries []Attribute) (found *DescriptorSpec, counter []string) {
	for i, e := range entries {
		text := e.Key + "_" + e.Value
		name := func(s *DescriptorSpec) string {
			if s.Value == "" {
				return s.Key
			}
			return s.Key + "_" + s.Value
		}
		var exact, wild, bare *DescriptorSpec
		for j := range specs {
			s := &specs[j]
			pattern := "(?s)^" + strings.ReplaceAll(regexp.QuoteMeta(name(s)), `\*`, ".*") + "$"
			switch {
			case name(s) == text:
				exact = s
			case wild == nil && strings.Contains(name(s), "*") && regexp.MustCompile(pattern).MatchString(text):
				wild = s
			}
			if name(s) == e.Key {
				bare = s
			}
		}
		value := e.Value
		switch {
		case exact != nil:
			found = exact
		case wild != nil:
			found = wild
			if wild.ShareThreshold {
				value = strings.TrimPrefix(name(wild), e.Key+"_")
			}
		case bare != nil:
			found = bare
		default:
			return nil, nil
		}
		counter = append(counter, fmt.Sprintf("%q=%q", e.Key, value))
		if i < len(entries)-1 {
			specs = found.Descriptors
		}
	}
	return found, counter
}

func drawSpecs(t *rapid.T, depth int) []DescriptorSpec {
	var specs []DescriptorSpec
	seen := make(map[string]bool)
	for range rapid.IntRange(0, 5).Draw(t, "descriptors") {
		s := DescriptorSpec{
			Key:   rapid.SampledFrom([]string{"a", "b", "a_x", "a*"}).Draw(t, "key"),
			Value: rapid.SampledFrom([]string{"", "x", "xy", "x*", "*y", "x*y", "*", "*x*y*", "x_y", "x*x", "*x*x*"}).Draw(t, "value"),
		}
		name := s.Key + "_" + s.Value
		if s.Value == "" {
			name = s.Key
		}
		if seen[name] {
			continue
		}
		seen[name] = true
		s.ShareThreshold = strings.Contains(name, "*") && rapid.Bool().Draw(t, "share")
		if rapid.Bool().Draw(t, "limited") {
			s.RateLimit = &RateLimitSpec{Unit: "minute", RequestsPerUnit: rapid.Uint32().Draw(t, "limit")}
		}
		if depth > 0 {
			s.Descriptors = drawSpecs(t, depth-1)
		}
		specs = append(specs, s)
	}
	return specs
}

// The tree finds what the description says, and counters are the same if the description
// says so.
func TestDescriptorsAgreeWithTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		specs := drawSpecs(t, 2)
		set, err := Compile("f", []Document{{Domain: "d", Descriptors: specs}})
		if err != nil {
			t.Fatal(err)
		}
		d := set.Descriptors("d")
		if d == nil {
			return
		}
		counters, keys := make(map[string]ring.Key), make(map[ring.Key]string)
		for range 20 {
			var entries []Attribute
			for range rapid.IntRange(1, 3).Draw(t, "entries") {
				entries = append(entries, Attribute{
					rapid.SampledFrom([]string{"a", "b", "a_x", "a*"}).Draw(t, "key"),
					rapid.SampledFrom([]string{"", "x", "y", "xy", "xyy", "yxzyz", "xx", "x*", "x_y", "*"}).Draw(t, "value"),
				})
			}
			want, counter := twin(specs, entries)
			rule, key := d.Match(testHasher, entries)
			switch {
			case want == nil || want.RateLimit == nil:
				if rule != nil {
					t.Fatalf("%v leads to %s, want nothing", entries, rule.ID)
				}
				continue
			case rule == nil || rule.Descriptor.Requests != want.RateLimit.RequestsPerUnit:
				t.Fatalf("%v leads to %v, want %v", entries, rule, want)
			}
			name := strings.Join(counter, " ")
			if other, known := counters[name]; known && other != key || keys[key] != "" && keys[key] != name {
				t.Fatalf("%v counts as %s with the key %v; others %v, %q", entries, name, key, other, keys[key])
			}
			counters[name], keys[key] = key, name
		}
	})
}

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
		if again.Revision() != set.Revision() || !reflect.DeepEqual(again.Documents(), docs) {
			t.Errorf("%+v\nwant %+v\n%s", again.Documents(), docs, file)
		}
	}
	rule, _ := set.Descriptors("d").Match(testHasher, entriesOf("a=xx"))
	got := *rule.Descriptor
	got.spec = DescriptorSpec{}
	want := Descriptor{
		Name: "n", Replaces: []string{"m", "o"}, Requests: 4294967295, Unit: 7, Shadow: true, Quota: true, detailed: true, varies: true, name: "d.a_*x",
		Metadata: map[string]any{
			"name": "s", "n": 1.0, "half": 0.5, "on": true, "none": nil, "list": []any{1.0, map[string]any{"a": "b"}},
			"day": "2026-01-01", "7": "seven",
		},
		Salt: salt(rule.Limits[0]),
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
		if parse(t, other).Revision() == set.Revision() {
			t.Errorf("has the same revision:\n%s", other)
		}
	}
	sliding, err := Lyft{Algorithm: algorithms.SlidingWindow}.Parse("f", []byte(text))
	if err != nil || sliding.Revision() == set.Revision() {
		t.Errorf("with another algorithm the revision is the same, %v", err)
	}
	diff := Diff(set, parse(t, strings.ReplaceAll(text, "per_unit: 1", "per_unit: 2")))
	if len(diff.Changed) != 1 || fmt.Sprint(diff.Changed[0].Details()) != "[{limits[0].limit 1 2} {descriptor.rate_limit.requests_per_unit 1 2}]" {
		t.Errorf("%+v", diff)
	}
}

// Two paths may read alike; their rules do not.
func TestDescriptorIDs(t *testing.T) {
	set := parse(t, "domain: d\ndescriptors:\n"+
		"- {key: a.b, rate_limit: {unit: day, requests_per_unit: 1}}\n"+
		"- {key: a, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]}\n")
	if got := ruleNames(set); got != "d/a.b d/a d/a.b~2" {
		t.Error(got)
	}
}

func TestDescriptorsMatchAllocatesNothing(t *testing.T) {
	d := parse(t, treeText).Descriptors("edge/one")
	entries := entriesOf("key1=value1", "subkey1=x")
	if n := testing.AllocsPerRun(100, func() { d.Match(testHasher, entries) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A hostile value costs no more than its length.
func TestWildcardsOfLongValues(t *testing.T) {
	d := parse(t, "domain: d\ndescriptors: [{key: a, value: 'x*y*z', rate_limit: {unit: day, requests_per_unit: 1}}]").Descriptors("d")
	for value, want := range map[string]bool{
		"x" + strings.Repeat("w", 60<<10) + "y" + "z": true,
		"x" + strings.Repeat("w", 60<<10) + "z":       false,
	} {
		if rule, _ := d.Match(testHasher, []Attribute{{"a", value}}); (rule != nil) != want {
			t.Errorf("%.9s...: %v", value, rule)
		}
	}
}
