package rules

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// everything has a rule with everything that the format knows, and odd texts.
const everything = `domain: shop
rules:
  - id: posts
    when:
      debug: {absent: true}
      method: [POST, PUT]
      path: re:/v[12]/.*
      status: "404"
    per: [ip, user]
    limits:
      - {limit: 10, window: 1s, burst: 20, algorithm: token_bucket}
      - {limit: 500, window: 1h}
    replaces: [free, hybrid]
    on_failure: deny
    durability: strict
    enforce: 0
    mode: {elastic: {parent: hybrid, up_to: 150%}}
    cost: size
    ipv6_prefix: 56
  - id: hybrid
    per: [[ip], [user]]
    limits:
      - {limit: 0, window: 10ms}
      - {limit: 9, window: {calendar: month, timezone: Europe/Paris, anchor: 15}, algorithm: fixed_window}
      - {limit: 9, window: {calendar: day}, algorithm: fixed_window}
      - {limit: 9, window: 1s, buckets: 7, algorithm: sliding_window_buckets}
    on_failure: local
    enforce: 50
    mode: {soft: {over: 10%}}
    cost: 0
  - id: queue
    limits:
      - {limit: 2, window: 1s, algorithm: leaky_bucket}
    max_delay: 1m30s
  - id: free
    when:
      ip: [10.0.0.0/8, '2001:db8::1']
    unlimited: true
    enabled: false
---
domain: other
rules:
  - id: odd/texts
    when:
      "1": "null"
      a: ""
      b: "line\nfeed\0\Lé"
      c: [' x', '# z', '''', '- y', "true", y, '{']
      d: '*'
      'key: x': '"'
    limits:
      - {limit: 2147483648, window: 366d}
`

// Format writes what it reads, and its own text to the letter.
func TestFormat(t *testing.T) {
	set := parse(t, everything)
	got, err := Format(set.Documents())
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != everything {
		t.Errorf("got\n%s\nwant\n%s", got, everything)
	}
	if again := parse(t, string(got)); again.Revision() != set.Revision() {
		t.Errorf("revision %s, want %s", again.Revision(), set.Revision())
	}
}

func TestFormatExamples(t *testing.T) {
	for _, name := range []string{"../deploy/examples/quickstart.yaml", "../deploy/examples/gateway-rules.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		set := parse(t, string(text))
		formatted, err := Format(set.Documents())
		if again := parse(t, string(formatted)); err != nil || again.Revision() != set.Revision() {
			t.Errorf("%s: revision %s becomes %s, %v", name, set.Revision(), again.Revision(), err)
		}
	}
}

func TestFormatNothing(t *testing.T) {
	for _, docs := range [][]Document{nil, {{Domain: "default"}}} {
		text, err := Format(docs)
		if want := "domain: default\nrules: []\n"; err != nil || string(text) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
	}
	if docs := parse(t, "domain: d\nrules: []\n").Documents(); docs != nil {
		t.Errorf("no rules are %v", docs)
	}
}

// Generated rules, and texts of any kind, survive all ways around.
func TestDocumentsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		docs := someDocuments(t)
		exact := func(s string) bool {
			return len(s) <= maxValue && !strings.HasPrefix(s, "re:") && !strings.Contains(s, "*")
		}
		odd := rapid.StringN(1, 20, maxAttribute)
		docs[0].Rules[0].When = map[string]ConditionSpec{
			"x":                   {AnyOf: []string{rapid.String().Filter(exact).Draw(t, "value")}},
			odd.Draw(t, "name"):   {AnyOf: []string{rapid.SampledFrom([]string{"~", "y", "0x1", "1e3", "<<", "2026-01-01", "-", "1:20"}).Draw(t, "kind")}},
			odd.Draw(t, "second"): {AnyOf: rapid.SliceOfNDistinct(odd.Filter(exact), 2, 4, rapid.ID[string]).Draw(t, "list")},
		}
		set, err := Compile("docs", docs)
		if err != nil {
			t.Fatalf("%v\n%s", err, pretty(docs))
		}
		if set.Len() != len(docs[0].Rules)+len(docs[1].Rules) {
			t.Fatalf("%d rules", set.Len())
		}
		canonical := set.Documents()
		text, err := Format(canonical)
		if err != nil {
			t.Fatal(err)
		}
		read, err := Parse("f.yaml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		compiled, err := Compile("docs", canonical)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		for _, again := range []*Set{read, compiled} {
			if again.Revision() != set.Revision() || !reflect.DeepEqual(again.Documents(), canonical) {
				t.Fatalf("%s\nbecomes\n%s", text, pretty(again.Documents()))
			}
		}
	})
}

func TestSpecIsOwn(t *testing.T) {
	set := parse(t, everything)
	before := set.Revision()
	for r := range set.Rules() {
		s := r.Spec()
		for _, c := range s.When {
			for i := range c.AnyOf {
				c.AnyOf[i] = "changed"
			}
		}
		for _, per := range s.Per {
			per[0] = "changed"
		}
		for i := range s.Replaces {
			s.Replaces[i] = "changed"
		}
		if s.Enforce != nil {
			*s.Enforce = 77
		}
	}
	if got := revision(set.rules, Options{}, nil); got != before {
		t.Error("a Spec shares memory with its Rule")
	}
}

// Problems of plain data name rule, field and value, and no lines.
func TestCompileProblems(t *testing.T) {
	limits := []LimitSpec{{Limit: 1, Window: "1s"}}
	for _, c := range []struct {
		docs []Document
		want string
	}{
		{[]Document{{}}, `api: domain: "" has 0 bytes, not 1 to 64`},
		{[]Document{{Domain: "d"}, {Domain: "a b"}}, `api: documents[1].domain: "a b" has characters other than letters, digits and _ - .`},
		{[]Document{{Domain: "d", Rules: []Spec{{Limits: limits}}}}, `api: rules[0].id: "" has 0 bytes, not 1 to 128`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r"}}}}, `api: rule "r": limits: is missing`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits}, {ID: "r", Limits: limits}}}}, `api: rule "r": domain "d" has a rule of this id already`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: []LimitSpec{{Limit: -1, Window: "1s"}}}}}}, `api: rule "r": limits[0].limit: "-1" is not between 0 and 2147483648`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: []LimitSpec{{Limit: 1, Window: "5"}}}}}}, `api: rule "r": limits[0].window: "5" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: []LimitSpec{{Limit: 1, Window: "1s", Calendar: &CalendarSpec{Calendar: "day"}}}}}}}, `api: rule "r": limits[0]: key "window" stands here twice`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Mode: &ModeSpec{}}}}}, `api: rule "r": mode: has 0 modes, not 1; write hard, {soft: {over: 10%}} or {elastic: {parent: org, up_to: 150%}}`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Cost: "-1"}}}}, `api: rule "r": cost: "-1" is not between 0 and 2147483648`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, IPv6Prefix: -1}}}}, `api: rule "r": ipv6_prefix: "-1" is not between 1 and 128`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Unlimited: true}}}}, `api: rule "r": limits: is not for an unlimited rule, which counts nothing`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Replaces: []string{"s"}}}}}, `api: rule "r": replaces[0]: "s" is not a rule of domain "d"`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: []LimitSpec{{Limit: 1}}}}}}, `api: rule "r": limits[0].window: is missing`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, When: map[string]ConditionSpec{"a": {}}}}}}, `api: rule "r": when.a: is empty; write at least 1`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, When: map[string]ConditionSpec{"a": {AnyOf: []string{"x"}, Absent: true}}}}}}, `api: rule "r": when.a[1]: is a mapping, not text`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, When: map[string]ConditionSpec{"a": {AnyOf: []string{"\xff"}}}}}}}, `api: rule "r": when.a: "\xff" is not valid UTF-8`},
		{[]Document{{Domain: "d", Rules: []Spec{{ID: "r", Limits: limits, Per: [][]string{{"u", "u"}}}}}}, `api: rule "r": per[1]: "u" stands here twice`},
	} {
		set, err := Compile("api", c.docs)
		if set != nil || err == nil || err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", err, c.want)
		}
	}
}

func TestFormatRefusesBytes(t *testing.T) {
	_, err := Format([]Document{{Domain: "d", Rules: []Spec{{ID: "\xff"}}}})
	if want := `format rules of domain "d": "\xff" is not valid UTF-8`; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestDiff(t *testing.T) {
	old := parse(t, `
domain: d
rules:
  - {id: same, when: {a: [x, y]}, per: [u, v], limits: [{limit: 1, window: 60s}]}
  - {id: gone, limits: [{limit: 1, window: 1s}]}
  - {id: changed, per: [u], limits: [{limit: 1, window: 1s}]}
  - {id: moved, limits: [{limit: 1, window: 1s}]}
`)
	latest := parse(t, `
domain: d
rules:
  - {id: added, limits: [{limit: 2, window: 1s}]}
  - {id: changed, when: {a: x}, per: [u], limits: [{limit: 2, window: 1s}], enabled: false}
  - {id: same, per: [v, u], when: {a: [y, x]}, limits: [{window: 1m, limit: 1, algorithm: sliding_window}], enabled: true}
---
domain: e
rules: [{id: moved, limits: [{limit: 1, window: 1s}]}]
`)
	c := Diff(old, latest)
	names := func(specs []NamedSpec) (list []string) {
		for _, s := range specs {
			list = append(list, s.Domain+"/"+s.Spec.ID)
		}
		return list
	}
	if got, want := names(c.Added), []string{"d/added", "e/moved"}; !slices.Equal(got, want) {
		t.Errorf("added %v, want %v", got, want)
	}
	if got, want := names(c.Removed), []string{"d/gone", "d/moved"}; !slices.Equal(got, want) {
		t.Errorf("removed %v, want %v", got, want)
	}
	if len(c.Changed) != 1 || c.Unchanged != 1 {
		t.Fatalf("%d changed, %d not: %v", len(c.Changed), c.Unchanged, c.Changed)
	}
	got := c.Changed[0]
	if want := []string{"when", "limits", "enabled"}; got.Domain != "d" || !slices.Equal(got.Fields, want) {
		t.Errorf("changed %s, fields %v, want %v", got.Domain, got.Fields, want)
	}
	if got.Old.Limits[0].Limit != 1 || got.New.Limits[0].Limit != 2 {
		t.Errorf("changed from %v to %v", got.Old, got.New)
	}
	if same := Diff(old, old); len(same.Added)+len(same.Changed)+len(same.Removed) > 0 || same.Unchanged != 4 {
		t.Errorf("a set differs from itself: %v", same)
	}
	if all := Diff(latest, &Set{}); len(all.Removed) != 4 {
		t.Errorf("%d removed", len(all.Removed))
	}
}

// TestSomeSpecHasEachKey holds that properties of rules are tried with every key.
func TestSomeSpecHasEachKey(t *testing.T) {
	drawn := make(map[string]bool)
	generated := rapid.Custom(someDocuments)
	for seed := range 100 {
		for _, doc := range generated.Example(seed) {
			for _, s := range doc.Rules {
				for _, key := range differing(Spec{}, s) {
					drawn[key] = true
				}
			}
		}
	}
	for _, k := range ruleKeys {
		if !drawn[k.Key] {
			t.Errorf("rule.%s: missing in someSpec or someCounting, in rules/documents_harness_test.go", k.Key)
		}
	}
}
