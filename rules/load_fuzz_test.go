package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/rules/internal/problem"
)

// FuzzParse: no text makes Parse panic; what it accepts can be matched, and what
// it refuses has a reason.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"",
		"domain: d\nrules: []\n",
		"domain: d\nrules:\n- {id: r, when: {a: [x, /p*, 're:[a-z]+'], b: \"*\", c: {absent: true}}, per: [u], limits: [{limit: 1, window: 1d}]}\n",
		"domain: d\nrules:\n- {id: r, limits: [{limit: 0, window: 1h30m, algorithm: sliding_window}], enabled: false}\n---\ndomain: e\nrules: []\n",
		"domain: d\nrules:\n- {id: r, when: {ip: [10.0.0.0/8, '::1']}, per: [[ip], [u]], limits: [{limit: 9, window: 1d}], mode: {soft: {over: 10%}}, cost: n, enforce: 5, durability: strict, ipv6_prefix: 56}\n- {id: s, unlimited: true, replaces: [r]}\n",
		"domain: &a d\nrules: [*a, {<<: *a}]\n",
		"domain: !!binary aGk=\nrules: {? [x] : y}\n",
		"domain: 'd\n# x\nrules: |\n  a\n",
		"domain: d\ndescriptors:\n- {key: a, value: 'x*', share_threshold: yes, metadata: {b: [1]}, rate_limit: &l {unit: day, requests_per_unit: 5, name: n, replaces: [{name: m}]}}\n" +
			"- {key: b, rate_limit: {<<: *l, unlimited: false}, descriptors: [{key: c, quota_mode: on}]}\n",
		"%YAML 1.1\n---\ndomain: d\n...\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := Parse("f.yaml", text)
		if err != nil {
			e, ok := errors.AsType[*LoadError](err)
			if set != nil || !ok || len(e.Problems) == 0 || len(e.Problems) > problem.Max {
				t.Fatalf("%v, %T with %v", set, err, err)
			}
			return
		}
		for r := range set.Rules() {
			if r.Descriptor != nil {
				set.Descriptors(r.Domain).Match(testHasher, []Attribute{{Key: "a", Value: "x"}, {Key: r.ID}})
				if _, err := set.DescriptorFiles(""); err != nil {
					t.Fatal(err)
				}
				continue
			}
			req := &Request{Domain: r.Domain}
			for _, set := range r.Per {
				for _, a := range set {
					req.Attributes = append(req.Attributes, Attribute{Key: a, Value: "x"})
				}
			}
			set.Match(testHasher, req, nil)
		}
	})
}

// Here are texts that are known to be hard on YAML parsers, and on this package.
// They are as long as what is parsed again and again for the line of an error.
func TestParseTakesBoundedTime(t *testing.T) {
	fill := func(s string) string { return strings.Repeat(s, (256<<10-100)/len(s)) }
	for _, c := range []struct{ what, text string }{
		{"lists", fill("[")},
		{"mappings", fill("{")},
		{"nested blocks", fill("- ")},
		{"explicit keys", fill("? ")},
		{"unknown keys", fill("a:\n")},
		{"comments", "domain: d\nrules:\n" + fill("-\n# c\n")},
		{"documents", fill("---\n")},
		{"anchors", "rules:\n" + fill("- &a x\n")},
		{"aliases", "rules:\n- &a x\n" + fill("- *a\n")},
		{"a long key", fill("a") + ": x\n"},
		{"a long id", "domain: d\nrules: [{id: " + fill("a") + "}]\n"},
		{"deep lists", fill(strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "\n---\n")},
		{"an unclosed quote", "domain: \"" + fill("a\n")},
		{"empty rules", "domain: d\nrules: [" + fill("{},") + "]\n"},
		{"values", "domain: d\nrules: [{id: r, when: {a: [" + fill("x,") + "]}}]\n"},
		{"expressions", "domain: d\nrules:\n" + fill(`- {id: r, when: {a: 're:`+strings.Repeat(`\pL{30}`, 30)+"'}}\n")},
		{"a late error", "domain: d\nrules:\n" + fill("- {id: r}\n") + "\t"},
		{"late errors", "domain: d\nrules:\n" + fill("- -\n# c\n") + ":"},
	} {
		begin := time.Now()
		_, err := Parse("f.yaml", []byte(c.text))
		if err == nil {
			t.Errorf("%s: no problem", c.what)
		}
		// They take half a second at most, and some under the race detector on a busy machine;
		// quadratic time would be minutes without it.
		if took := time.Since(begin); took > time.Minute {
			t.Errorf("%s: %v", c.what, took)
		} else {
			t.Logf("%s: %v", c.what, took.Round(time.Millisecond))
		}
	}
}
