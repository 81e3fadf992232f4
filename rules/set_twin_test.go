package rules

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules/internal/counter"
)

// answer is a Match in plain data.
type answer struct {
	rule       string
	per, limit int
	key        ring.Key
	above      int64
	shadow     bool
}

func answers(ms []Match) []answer {
	var as []answer
	for _, m := range ms {
		as = append(as, answer{m.Rule.ID, m.Per, m.Limit, m.Key, m.Above, m.Shadow})
	}
	return as
}

// linear is the dumb twin of Set.Match: it asks every rule, as it is written.
func linear(docs []Document, req *Request) []answer {
	attributes := make(map[string]string)
	for _, a := range req.Attributes {
		attributes[a.Key] = a.Value
		if canonical, is := someIPs[a.Value]; is && a.Key == "ip" {
			attributes["ip"] = canonical
		}
	}
	var matching []Spec
	found := make(map[string][]answer)
	for _, doc := range docs {
		for _, s := range doc.Rules {
			if doc.Domain == req.Domain && applies(s, attributes) {
				if found[s.ID] = counters(doc.Domain, s, attributes); len(found[s.ID]) > 0 || s.Unlimited {
					matching = append(matching, s)
				}
			}
		}
	}
	return settled(matching, found)
}

// settled is what is left of the matching rules' answers, and raised.
func settled(matching []Spec, found map[string][]answer) []answer {
	left := slices.DeleteFunc(slices.Clone(matching), func(s Spec) bool {
		return slices.ContainsFunc(matching, func(other Spec) bool { return slices.Contains(other.Replaces, s.ID) })
	})
	var free []string
	exempt := false
	for _, s := range left {
		if s.Unlimited {
			free = append(free, s.ID)
			exempt = exempt || len(s.Replaces) == 0
		}
	}
	left = slices.DeleteFunc(left, func(s Spec) bool {
		blocks := slices.ContainsFunc(s.Limits, func(l LimitSpec) bool { return l.Limit == 0 })
		return s.Unlimited || exempt && !blocks
	})
	if len(left) == 0 && len(free) > 0 {
		return []answer{{rule: free[0], limit: -1}}
	}
	var as []answer
	for _, s := range left {
		for _, a := range found[s.ID] {
			switch m := s.Mode; {
			case m == nil:
			case m.Soft != nil:
				a.above = share(s.Limits[a.limit].Limit, m.Soft.Over)
			case slices.ContainsFunc(left, func(s Spec) bool { return s.ID == m.Elastic.Parent }) &&
				!slices.ContainsFunc(found[m.Elastic.Parent], func(a answer) bool { return a.shadow }):
				a.above = share(s.Limits[a.limit].Limit, m.Elastic.UpTo) - s.Limits[a.limit].Limit
			}
			as = append(as, a)
		}
	}
	return as
}

// share returns a percentage of n, rounded down.
func share(n int64, percent string) int64 {
	var p int64
	if _, err := fmt.Sscanf(percent, "%d%%", &p); err != nil {
		panic(err)
	}
	return n * p / 100
}

// applies says whether the conditions of s hold.
func applies(s Spec, attributes map[string]string) bool {
	if s.Enabled != nil && !*s.Enabled {
		return false
	}
	for attribute, c := range s.When {
		value, present := attributes[attribute]
		holds := func(p string) bool {
			return fits(p, value) || attribute == "ip" && addressFits(p, value)
		}
		if present == c.Absent || !c.Absent && !slices.ContainsFunc(c.AnyOf, holds) {
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

func addressFits(pattern, value string) bool {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return false
	}
	block, err := netip.ParsePrefix(pattern)
	return err == nil && block.Contains(addr)
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
			value := attributes[name]
			if name == "ip" {
				value = cutIPv6(value, cmp.Or(s.IPv6Prefix, 64))
			}
			parts = append(parts, name, value)
		}
		key := testHasher.Key(joined(parts))
		shadow := s.Enforce != nil && float64(key.Lo>>32)*100 >= float64(*s.Enforce<<32)
		for i, l := range s.Limits {
			as = append(as, answer{s.ID, per, i, key.With(saltOf(l)), 0, shadow})
		}
	}
	return as
}

func saltOf(s LimitSpec) uint64 {
	l := algorithms.Limit{Algorithm: algorithms.SlidingWindow}
	if s.Algorithm != "" {
		l.Algorithm, _ = algorithms.Parse(s.Algorithm)
	}
	var err error
	if c := s.Calendar; c != nil {
		l.Calendar, err = algorithms.NewCalendar(c.Calendar, c.Timezone, c.Anchor)
	} else {
		var window time.Duration
		window, err = parseDuration(s.Window, 0)
		l.Window = int64(window)
	}
	if err != nil {
		panic(err)
	}
	return counter.Salt(l)
}

func cutIPv6(value string, bits int64) string {
	if addr, err := netip.ParseAddr(value); err == nil && addr.Is6() {
		return netip.PrefixFrom(addr, int(bits)).Masked().String()
	}
	return value
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
			req := someRequest(t)
			got, want := answers(set.Match(testHasher, req, nil)), linear(docs, req)
			if !slices.Equal(got, want) {
				t.Fatalf("%v matches %v, want %v\n%s", *req, got, want, pretty(docs))
			}
		}
	})
}
