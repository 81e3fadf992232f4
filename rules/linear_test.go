package rules

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// linear is the dumb twin of Set.Match: it asks every rule, and reads conditions
// as they are written.
func linear(rules []*Rule, req *Request) []Match {
	attributes := make(map[string]string)
	for _, a := range req.Attributes {
		attributes[a.Key] = a.Value
	}
	fits := func(c Condition) bool {
		value, present := attributes[c.Attribute]
		return present != c.Absent && (c.Absent || slices.ContainsFunc(c.AnyOf, func(p string) bool {
			if text, ok := strings.CutPrefix(p, "re:"); ok {
				return regexp.MustCompile("^(?:" + text + ")$").MatchString(value)
			}
			text, prefix := strings.CutSuffix(p, "*")
			return value == text || prefix && strings.HasPrefix(value, text)
		}))
	}
	var ms []Match
next:
	for _, r := range rules {
		if !r.Enabled || r.Domain != req.Domain {
			continue
		}
		for _, c := range r.When {
			if !fits(c) {
				continue next
			}
		}
		parts := []string{r.Domain, r.ID}
		for _, name := range r.Per {
			value, ok := attributes[name]
			if !ok {
				continue next
			}
			parts = append(parts, name, value)
		}
		for i, l := range r.Limits {
			ms = append(ms, Match{Rule: r, Limit: i, Key: testHasher.Key(joined(parts)).With(salt(l))})
		}
	}
	return ms
}

// joined is the encoding of a name, written down once more.
func joined(parts []string) []byte {
	var b []byte
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return b
}

var (
	someAttributes = []string{"a", "b", "c"}
	someValues     = []string{"", "/", "/x", "/x/", "/x/y", "/xy", "/y", "x", "y"}
	somePatterns   = []string{"", "/", "/x", "/x/y", "x", "y", "/*", "/x*", "/x/*", "/x/y*", "x*", "re:/?[xy]", "re:.*y"}
)

// someRule writes a rule in YAML.
func someRule(t *rapid.T, id int) string {
	condition := rapid.Custom(func(t *rapid.T) string {
		pattern := rapid.SampledFrom(somePatterns)
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return `"*"`
		case 1:
			return "{absent: true}"
		case 2, 3:
			list := rapid.SliceOfNDistinct(pattern, 1, 5, rapid.ID[string]).Draw(t, "list")
			return `["` + strings.Join(list, `", "`) + `"]`
		}
		return `"` + pattern.Draw(t, "pattern") + `"`
	})
	per := rapid.SliceOfNDistinct(rapid.SampledFrom(someAttributes), 0, 2, rapid.ID[string]).Draw(t, "per")
	var when []string
	for _, a := range someAttributes {
		if rapid.Bool().Draw(t, "has "+a) {
			c := condition.Draw(t, a)
			if strings.HasPrefix(c, "{") && slices.Contains(per, a) {
				continue // refused: it could never match
			}
			when = append(when, a+": "+c)
		}
	}
	limits := "{limit: 1, window: 1s}"
	if rapid.Bool().Draw(t, "two limits") {
		limits += ", {limit: 9, window: 1h}"
	}
	return fmt.Sprintf("- {id: r%d, when: {%s}, per: [%s], limits: [%s], enabled: %t}\n", id,
		strings.Join(when, ", "), strings.Join(per, ", "), limits, rapid.IntRange(0, 9).Draw(t, "on") > 0)
}

func TestMatchAsLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := ""
		for _, domain := range []string{"d", "e"} {
			text += "---\ndomain: " + domain + "\nrules:\n"
			for i := range rapid.IntRange(1, 12).Draw(t, "rules") {
				text += someRule(t, i)
			}
		}
		set, err := Parse("f.yaml", []byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		rules := slices.Collect(set.Rules())
		for range 20 {
			req := &Request{Domain: rapid.SampledFrom([]string{"d", "d", "e", "f"}).Draw(t, "domain")}
			for _, a := range rapid.Permutation(someAttributes).Draw(t, "order") {
				if rapid.IntRange(0, 3).Draw(t, "has") > 0 {
					req.Attributes = append(req.Attributes, Attribute{a, rapid.SampledFrom(someValues).Draw(t, "value")})
				}
			}
			if got, want := set.Match(testHasher, req, nil), linear(rules, req); !slices.Equal(got, want) {
				t.Fatalf("%v matches %s, want %s\n%s", *req, matched(got), matched(want), text)
			}
		}
	})
}
