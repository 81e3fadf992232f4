package envoy_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/rules/envoy"
)

// twin finds a descriptor as the reference's README describes it, and names its counter.
func twin(specs []envoy.Spec, entries []rules.Attribute) (found *envoy.Spec, counter []string) {
	for i, e := range entries {
		text := e.Key + "_" + e.Value
		name := func(s *envoy.Spec) string {
			if s.Value == "" {
				return s.Key
			}
			return s.Key + "_" + s.Value
		}
		var exact, wild, bare *envoy.Spec
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

func drawSpecs(t *rapid.T, depth int) []envoy.Spec {
	var specs []envoy.Spec
	seen := make(map[string]bool)
	for range rapid.IntRange(0, 5).Draw(t, "descriptors") {
		s := envoy.Spec{
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
			s.RateLimit = &envoy.RateLimitSpec{Unit: "minute", RequestsPerUnit: rapid.Uint32().Draw(t, "limit")}
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
		set, err := rules.Compile("f", []rules.Document{{Domain: "d", Descriptors: specs}})
		if err != nil {
			t.Fatal(err)
		}
		d := set.Descriptors("d")
		if d == nil {
			return
		}
		counters, keys := make(map[string]ring.Key), make(map[ring.Key]string)
		for range 20 {
			var entries []rules.Attribute
			for range rapid.IntRange(1, 3).Draw(t, "entries") {
				entries = append(entries, rules.Attribute{
					Key:   rapid.SampledFrom([]string{"a", "b", "a_x", "a*"}).Draw(t, "key"),
					Value: rapid.SampledFrom([]string{"", "x", "y", "xy", "xyy", "yxzyz", "xx", "x*", "x_y", "*"}).Draw(t, "value"),
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
