package envoy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/rules/internal/counter"
)

// entriesOf reads key=value texts.
func entriesOf(texts ...string) []rules.Attribute {
	var es []rules.Attribute
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		es = append(es, rules.Attribute{Key: key, Value: value})
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
		{strings.Fields(strings.Repeat("key2=value2 ", 17)), ""},
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
	if got := set.Match(testHasher, &rules.Request{Domain: "edge/one", Attributes: entriesOf("key2=x")}, nil); got != nil {
		t.Errorf("Match finds %v", got)
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
	if want := testHasher.Key([]byte(name)).With(counter.Salt(envoy.Options{}.Limit(1, envoy.Second.Window()))); key("files=files/a", "user=u") != want {
		t.Error("the counter is not the one of its name")
	}
	// What a request overrides is counted where its entries are counted without that.
	second := envoy.Options{}.Limit(7, envoy.Second.Window())
	if got := envoy.OverrideKey(testHasher, "d", entriesOf("bare=1"), second); got != key("bare=1") {
		t.Error("an override has another counter")
	}
	minute := envoy.Options{}.Limit(7, (envoy.Second + 1).Window())
	if got := envoy.OverrideKey(testHasher, "d", entriesOf("bare=1"), minute); got == key("bare=1") {
		t.Error("an override with another unit has the same counter")
	}
	if got := envoy.OverrideKey(testHasher, "e", entriesOf("bare=1"), second); got == key("bare=1") {
		t.Error("another domain has the same counter")
	}
	sliding, err := rules.Options{Envoy: envoy.Options{Algorithm: algorithms.SlidingWindow}}.Parse("f", []byte("domain: d\ndescriptors: [{key: bare, rate_limit: {unit: second, requests_per_unit: 1}}]"))
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
		if rule, _ := d.Match(testHasher, []rules.Attribute{{Key: "a", Value: value}}); (rule != nil) != want {
			t.Errorf("%.9s...: %v", value, rule)
		}
	}
}
