package rules

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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
			if again.Hash() != set.Hash() || !reflect.DeepEqual(again.Documents(), canonical) {
				t.Fatalf("%s\nbecomes\n%s", text, pretty(again.Documents()))
			}
		}
	})
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
			t.Errorf("rule.%s: missing in someSpec or someCounting, in rules/harness_randomdocuments_test.go", k.Key)
		}
	}
}
