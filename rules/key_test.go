package rules

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules/internal/counter"
)

// subjectOf returns a subject with just what its counters' names depend on.
func subjectOf(domain, id string, per ...string) *namedSubject {
	r := &Rule{Domain: domain, ID: id}
	if len(per) > 0 {
		r.Per = [][]string{per}
	}
	r.prepare(0, make(map[string]*kind))
	return &r.subjects[0]
}

// nameFor returns the name of the counter that req chooses.
func (s *namedSubject) nameFor(req *Request) []byte {
	name, _ := s.kind.appendName(nil, s.name, req, math.MaxInt)
	return name
}

// readName reads a name back into its texts. That it can be done shows that no
// two names are alike.
func readName(name []byte) (texts []string, ok bool) {
	for len(name) > 0 {
		size, n := binary.Uvarint(name)
		if n <= 0 || size > uint64(len(name)-n) {
			return nil, false
		}
		texts = append(texts, string(name[n:n+int(size)]))
		name = name[n+int(size):]
	}
	return texts, true
}

func FuzzKey(f *testing.F) {
	f.Add("shop", "posts-per-user", "user", "alice", "ip", "10.0.0.1", 64)
	f.Add("shop", "posts-per", "useruser", "alice", "", "", 64)
	f.Add("a", "b", "", "", "", "", 1)
	f.Add("a", "b", "c\x01d", "\x00", "e", strings.Repeat("x", 300), 128)
	f.Add("a", "b", "ip", "[2001:DB8::1%eth0]:80", "e", "", 56)
	f.Fuzz(func(t *testing.T, domain, id, a, v, b, w string, bits int) {
		if a == b {
			return // no set has an attribute twice
		}
		rule := &Rule{Domain: domain, ID: id, Per: [][]string{{a}, {b}, {a, b}}, IPv6Prefix: 1 + bits&127}
		rule.prepare(0, make(map[string]*kind))
		values := map[string]string{a: v, b: w}
		for i, s := range rule.subjects {
			want := []string{domain, id}
			req := &Request{}
			for _, attribute := range rule.Per[i] {
				value := values[attribute]
				req.Attributes = append(req.Attributes, Attribute{Key: attribute, Value: value})
				if parsed, _, ok := parseIPText(value); ok && attribute == "ip" {
					value = parsed.String()
					if parsed.Is6() {
						value = netip.PrefixFrom(parsed, rule.IPv6Prefix).Masked().String()
					}
				}
				want = append(want, attribute, value)
			}
			if got, ok := readName(s.nameFor(canonicalOf(req))); !ok || !slices.Equal(got, want) {
				t.Fatalf("%q reads back as %q, %t", want, got, ok)
			}
		}
		if _, err := netip.ParseAddr(v); err == nil && !ValidIP(v) && !strings.Contains(v, "%") {
			t.Fatalf("%q is an address", v)
		}
	})
}

func TestNamesDiffer(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("a\x00\x01\x02")), 0, 3, -1)
	list := rapid.Custom(func(t *rapid.T) []string {
		n := 2 + 2*rapid.IntRange(0, 2).Draw(t, "pairs")
		return rapid.SliceOfN(text, n, n).Draw(t, "texts")
	})
	encode := func(s []string) []byte {
		var per []string
		req := &Request{}
		for i := 2; i < len(s); i += 2 {
			attribute := fmt.Sprint(i, s[i]) // no two alike
			per, req.Attributes = append(per, attribute), append(req.Attributes, Attribute{Key: attribute, Value: s[i+1]})
		}
		return subjectOf(s[0], s[1], per...).nameFor(req)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := list.Draw(t, "a"), list.Draw(t, "b")
		if same := bytes.Equal(encode(a), encode(b)); same != slices.Equal(a, b) {
			t.Fatalf("%q and %q have the same name: %t", a, b, same)
		}
	})
}

// keys returns the keys of a request by rule, algorithm and window.
func keys(t *testing.T, rule string, attributes ...string) map[algorithms.Limit]ring.Key {
	t.Helper()
	got := make(map[algorithms.Limit]ring.Key)
	for _, m := range parse(t, oneRule(rule)).Match(testHasher, request("d", attributes...), nil) {
		if set := m.Rule.Per; len(set) > 1 && !slices.Equal(set[m.Per], []string{"ip", "user"}) {
			continue
		}
		l := m.Rule.Limits[m.Limit]
		l.Limit, l.Buckets = 0, 0
		got[l] = m.Key
	}
	return got
}

func TestKeyKeeps(t *testing.T) {
	const base = `{id: r, per: [user, ip], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}]}`
	want := keys(t, base, "user=u", "ip=i")
	if len(want) != 2 {
		t.Fatalf("%d keys, want 2", len(want))
	}
	for _, c := range []struct{ what, rule string }{
		{"another limit", `{id: r, per: [user, ip], limits: [{limit: 7, window: 1s}, {limit: 0, window: 1m}]}`},
		{"limits in another order", `{id: r, per: [user, ip], limits: [{limit: 5, window: 1m}, {limit: 1, window: 1s}]}`},
		{"a window written otherwise", `{id: r, per: [user, ip], limits: [{limit: 1, window: 1000ms}, {limit: 5, window: 60s}]}`},
		{"per in another order", `{id: r, per: [ip, user], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}]}`},
		{"several sets", `{id: r, per: [[a], [user, ip], [x]], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}]}`},
		{"sets in another order", `{id: r, per: [[ip, user], [z]], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}]}`},
		{"a mode", `{id: r, per: [user, ip], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}], mode: {soft: {over: 100%}}}`},
		{"another cost", `{id: r, per: [user, ip], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}], cost: 5}`},
		{"a roll-out", `{id: r, per: [user, ip], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}], enforce: 0}`},
		{"a delay", `{id: r, per: [user, ip], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}], max_delay: 0s}`},
		{"another condition", `{id: r, when: {user: u*}, per: [user, ip], limits: [{limit: 1, window: 1s}, {limit: 5, window: 1m}]}`},
	} {
		got := keys(t, c.rule, "ip=i", "x=y", "user=u")
		for l, key := range want {
			if got[l] != key {
				t.Errorf("%s: the key of %v has changed", c.what, l)
			}
		}
	}
}

// The buckets of a window are divided again when their number changes.
func TestKeyKeepsBuckets(t *testing.T) {
	few := keys(t, `{id: r, limits: [{limit: 1, window: 1s, algorithm: sliding_window_buckets, buckets: 5}]}`)
	many := keys(t, `{id: r, limits: [{limit: 1, window: 1s, algorithm: sliding_window_buckets, buckets: 500}]}`)
	if len(few) != 1 || !maps.Equal(few, many) {
		t.Errorf("%v and %v", few, many)
	}
}

func TestKeyChanges(t *testing.T) {
	seen := map[ring.Key]string{}
	for _, c := range []struct{ what, rule, user, ip string }{
		{"base", `{id: r, per: [user], limits: [{limit: 1, window: 1s}, {limit: 1, window: 2s}]}`, "user=u", "ip=i"},
		{"another id", `{id: s, per: [user], limits: [{limit: 1, window: 1s}]}`, "user=u", "ip=i"},
		{"another value", `{id: r, per: [user], limits: [{limit: 1, window: 1s}]}`, "user=v", "ip=i"},
		{"another window", `{id: r, per: [user], limits: [{limit: 1, window: 3s}]}`, "user=u", "ip=i"},
		{"another algorithm", `{id: r, per: [user], limits: [{limit: 1, window: 1s, algorithm: fixed_window}]}`, "user=u", "ip=i"},
		{"calendars", `{id: r, per: [user], limits: [{limit: 1, window: {calendar: day}, algorithm: fixed_window}, {limit: 1, window: {calendar: day, timezone: Asia/Tokyo}, algorithm: fixed_window},
		  {limit: 1, window: {calendar: month}, algorithm: fixed_window}, {limit: 1, window: {calendar: month, anchor: 2}, algorithm: fixed_window}, {limit: 1, window: 1d, algorithm: fixed_window}]}`, "user=u", "ip=i"},
		{"other attributes", `{id: r, per: [ip], limits: [{limit: 1, window: 1s}]}`, "user=u", "ip=u"},
		{"more attributes", `{id: r, per: [user, ip], limits: [{limit: 1, window: 1s}]}`, "user=u", "ip=i"},
		{"shared", `{id: r, limits: [{limit: 1, window: 1s}]}`, "user=u", "ip=i"},
		{"long name", `{id: r, per: [user], limits: [{limit: 1, window: 1s}]}`, "user=" + strings.Repeat("u", counter.SmallName), "ip=i"},
		{"longer name", `{id: r, per: [user], limits: [{limit: 1, window: 1s}]}`, "user=" + strings.Repeat("u", largeName), "ip=i"},
	} {
		for l, key := range keys(t, c.rule, c.user, c.ip) {
			if other, twice := seen[key]; twice {
				t.Errorf("%s %v has the key of %s", c.what, l, other)
			}
			seen[key] = c.what
		}
	}
	if len(seen) != 16 {
		t.Errorf("%d keys, want 16", len(seen))
	}
}

// Limits of one rule and subject are decided together, so they share a place.
func TestKeysShareLo(t *testing.T) {
	ks := keys(t, `{id: r, per: [user], limits: [{limit: 1, window: 1s}, {limit: 1, window: 2s}]}`, "user=u")
	var los []uint64
	for _, k := range ks {
		los = append(los, k.Lo)
	}
	if len(los) != 2 || los[0] != los[1] {
		t.Errorf("got %x", los)
	}
}

// Nodes of different versions must agree on every key, so these values are here
// to stay.
func TestKeyGolden(t *testing.T) {
	const rule = `{id: posts-per-user, per: [user], limits: [{limit: 10, window: 1s}]}`
	l := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Window: 1e9}
	if got, want := counter.Salt(l), uint64(0x7fa2cafb006e44a5); got != want {
		t.Errorf("salt is %#x, want %#x", got, want)
	}
	calendar, err := algorithms.NewCalendar("month", "Europe/Paris", 15)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := counter.Salt(algorithms.Limit{Algorithm: algorithms.FixedWindow, Calendar: calendar}), uint64(0x910e74715cc69936); got != want {
		t.Errorf("salt of a calendar is %#x, want %#x", got, want)
	}
	got := subjectOf("d", "r", "user").nameFor(request("", "user=alice"))
	if want := "\x01d\x01r\x04user\x05alice"; string(got) != want {
		t.Errorf("name is %q, want %q", got, want)
	}
	if got, want := keys(t, rule, "user=alice")[l], (ring.Key{Hi: 0x88f4db5a533c6680, Lo: 0xdb3192a54b2f788d}); got != want {
		t.Errorf("key is %#v, want %#v", got, want)
	}
}
