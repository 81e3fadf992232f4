package rules

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// answer is a Match in plain data.
type answer struct {
	rule       string
	per, limit int
	key        ring.Key
}

func answers(ms []Match) []answer {
	var as []answer
	for _, m := range ms {
		as = append(as, answer{m.Rule.ID, m.Per, m.Limit, m.Key})
	}
	return as
}

// linear is the dumb twin of Set.Match: it asks every rule, as it is written.
func linear(docs []Document, req *Request) []answer {
	attributes := make(map[string]string)
	for _, a := range req.Attributes {
		attributes[a.Key] = a.Value
	}
	var as []answer
	for _, doc := range docs {
		for _, s := range doc.Rules {
			if doc.Domain == req.Domain && applies(s, attributes) {
				as = append(as, counters(doc.Domain, s, attributes)...)
			}
		}
	}
	return as
}

// applies says whether the conditions of s hold.
func applies(s Spec, attributes map[string]string) bool {
	if s.Enabled != nil && !*s.Enabled {
		return false
	}
	for attribute, c := range s.When {
		value, present := attributes[attribute]
		if present == c.Absent || !c.Absent && !slices.ContainsFunc(c.AnyOf, func(p string) bool { return fits(p, value) }) {
			return false
		}
	}
	return true
}

func fits(pattern, value string) bool {
	if text, ok := strings.CutPrefix(pattern, "re:"); ok {
		return regexp.MustCompile("^(?:" + text + ")$").MatchString(value)
	}
	text, prefix := strings.CutSuffix(pattern, "*")
	return value == text || prefix && strings.HasPrefix(value, text)
}

// counters returns an answer for each counter of s that attributes choose.
func counters(domain string, s Spec, attributes map[string]string) []answer {
	sets := s.Per
	if len(sets) == 0 {
		sets = [][]string{nil}
	}
	var as []answer
	for per, set := range sets {
		if slices.ContainsFunc(set, func(a string) bool { _, has := attributes[a]; return !has }) {
			continue
		}
		parts := []string{domain, s.ID}
		for _, name := range set {
			parts = append(parts, name, attributes[name])
		}
		for i, l := range s.Limits {
			window, err := parseWindow(l.Window)
			if err != nil {
				panic(err)
			}
			salt := salt(algorithms.Limit{Algorithm: algorithms.SlidingWindow, Window: int64(window)})
			as = append(as, answer{s.ID, per, i, testHasher.Key(joined(parts)).With(salt)})
		}
	}
	return as
}

// joined is the encoding of a name, written down once more.
func joined(parts []string) []byte {
	var b []byte
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return b
}

func TestMatchAsLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		docs := someDocuments(t)
		set, err := Compile("docs", docs)
		if err != nil {
			t.Fatalf("%v\n%s", err, pretty(docs))
		}
		docs = set.Documents() // in the order of the Set, and with sorted sets
		for range 20 {
			req := &Request{Domain: rapid.SampledFrom([]string{"d", "d", "e", "f"}).Draw(t, "domain")}
			for _, a := range rapid.Permutation(someAttributes).Draw(t, "order") {
				if rapid.IntRange(0, 3).Draw(t, "has") > 0 {
					req.Attributes = append(req.Attributes, Attribute{a, rapid.SampledFrom(someValues).Draw(t, "value")})
				}
			}
			got, want := answers(set.Match(testHasher, req, nil)), linear(docs, req)
			if !slices.Equal(got, want) {
				t.Fatalf("%v matches %v, want %v\n%s", *req, got, want, pretty(docs))
			}
		}
	})
}
