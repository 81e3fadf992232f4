package sim

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const second = time.Second

// at returns n hits of one token, at one instant.
func at(when time.Duration, n int) []Hit {
	hits := make([]Hit, n)
	for i := range hits {
		hits[i] = Hit{From: when, To: when, Tokens: 1}
	}
	return hits
}

func join(parts ...[]Hit) (all []Hit) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// copied has hits decided from copies.
func copied(hits []Hit) []Hit {
	for i := range hits {
		hits[i].Source = weirv1.Source_SOURCE_PROVISIONAL
	}
	return hits
}

// between returns n hits that are known to lie in between, and no more.
func between(from, to time.Duration, n int) []Hit {
	hits := at(from, n)
	for i := range hits {
		hits[i].To = to
	}
	return hits
}

func named(t *testing.T, name string) int {
	t.Helper()
	for i, r := range Rules {
		if r.Name == name {
			return i
		}
	}
	t.Fatalf("no rule %s", name)
	return 0
}

// One token more than what is allowed is found, and none less is.
func TestExcess(t *testing.T) {
	one := func(when time.Duration) []Hit { return at(when, 1) }
	crash := []Fault{{Kind: Crash, At: 10 * second, Node: "a"}}
	for name, tc := range map[string]struct {
		rule   string
		hits   []Hit // all that is allowed
		more   []Hit // what is not
		faults []Fault
	}{
		"fixed":                 {"fixed", at(5*second, 12), one(7 * second), nil},
		"fixed, two windows":    {"fixed", join(at(3999*time.Millisecond, 12), at(4*second, 12)), one(4 * second), nil},
		"fixed, which window":   {"fixed", join(at(5*second, 12), between(7*second, 9*second, 9)), one(5 * second), nil},
		"fixed, price":          {"fixed", join(at(5*second, 10), []Hit{{From: 5 * second, To: 5 * second, Tokens: 2}}), one(5 * second), nil},
		"sliding":               {"sliding", at(5*second, 12), one(7 * second), nil},
		"hour":                  {"sliding-hour", join(at(5*second, 20), at(30*second, 20)), one(60 * second), nil},
		"log":                   {"log", join(at(5*second, 20), at(11*second, 20)), one(10999 * time.Millisecond), nil},
		"buckets":               {"buckets", join(at(5*second, 20), at(11*second, 20)), one(9 * second), nil},
		"bucket":                {"bucket", join(at(5*second, 31), at(10*second, 10)), one(10 * second), nil},
		"gcra":                  {"gcra", join(at(5*second, 21), at(10*second, 10)), one(10 * second), nil},
		"leaky":                 {"leaky", join(at(5*second, 2), paced(11, asked)), one(10 * second), nil},
		"leaky, as it goes":     {"leaky", join(at(5*second, 2), paced(11, waiting)), paced(11, waiting)[10:], nil},
		"joins give nothing":    {"fixed", at(9*second, 12), one(9 * second), []Fault{{Kind: Join, At: 5 * second, Node: "d"}, {Kind: Drain, At: 9 * second, Node: "a"}, {Kind: EtcdStop, At: 9 * second, For: second}, {Kind: OneWay, At: 7 * second, For: second, Node: "b", Other: "c"}}},
		"death: one check":      {"fixed", join(at(10*second-2*time.Millisecond, 3), at(11*second, 12)), one(11 * second), crash},
		"death: a tenth":        {"fixed-hour", join(at(9950*time.Millisecond, 20), at(20*second, 24)), one(20 * second), crash},
		"death: what was last":  {"fixed-hour", join(at(5*second, 37), at(9950*time.Millisecond, 2), at(20*second, 3)), one(20 * second), crash},
		"death elsewhere":       {"fixed", at(13*second, 12), one(13 * second), crash},
		"two deaths":            {"fixed-hour", at(20*second, 80), one(20 * second), []Fault{{Kind: Flash, At: 10 * second, Node: "a"}, {Kind: Crash, At: 17 * second, For: 9 * second, Node: "b"}}},
		"two deaths, both back": {"fixed-hour", at(20*second, 120), one(20 * second), []Fault{{Kind: Flash, At: 10 * second, Node: "a"}, {Kind: Crash, At: 17 * second, For: 8 * second, Node: "b"}}},
		"three deaths, two back": {"fixed-hour", at(20*second, 160), one(20 * second), []Fault{{Kind: Crash, At: 10 * second, For: 40 * second, Node: "a"},
			{Kind: Flash, At: 16 * second, Node: "b"}, {Kind: Flash, At: 17 * second, Node: "c"}}},
		"two deaths of one node": {"fixed-hour", at(20*second, 40), one(20 * second), []Fault{{Kind: Flash, At: 10 * second, Node: "a"}, {Kind: Crash, At: 17 * second, Node: "a"}}},
		"two deaths, apart":      {"fixed-hour", at(20*second, 40), one(20 * second), []Fault{{Kind: Flash, At: 5 * second, Node: "a"}, {Kind: Crash, At: 17 * second, Node: "b"}}},
		"two deaths, no etcd": {"fixed-hour", at(20*second, 80), one(20 * second),
			[]Fault{{Kind: Flash, At: 5 * second, Node: "a"}, {Kind: EtcdHang, At: 6 * second, For: 5 * second}, {Kind: Crash, At: 17 * second, For: 40 * second, Node: "b"}}},
		"two deaths, apart from nothing while no etcd": {"log", at(14*second, 40), one(14 * second),
			[]Fault{{Kind: Flash, At: 10 * second, Node: "a"}, {Kind: Crash, At: 11 * second, For: 40 * second, Node: "b"}, {Kind: EtcdHang, At: 12 * second, For: 5 * second}}},
		"two deaths, then nothing apart": {"log", at(14*second, 20), one(14 * second),
			[]Fault{{Kind: Flash, At: 10 * second, Node: "a"}, {Kind: Crash, At: 11 * second, For: 40 * second, Node: "b"}}},
		"two deaths, then two copies": {"bucket", join(at(14*second, 30+30), at(18*second, 2*8+1)), one(18 * second),
			[]Fault{{Kind: Flash, At: 10 * second, Node: "a"}, {Kind: Flash, At: 11 * second, Node: "b"}}},
		"two deaths, two copies until one owns": {"bucket", join(at(14*second, 30+30), at(22*second, 2*8+2*5+1)), one(22 * second),
			[]Fault{{Kind: Flash, At: 10 * second, Node: "a"}, {Kind: Flash, At: 11 * second, Node: "b"}}},
		"two deaths, long after": {"bucket", join(at(20*second, 31), at(24*second, 8)), one(24 * second),
			[]Fault{{Kind: Flash, At: 10 * second, Node: "a"}, {Kind: Flash, At: 11 * second, Node: "b"}}},
		"two are gone, no etcd": {"fixed-hour", at(20*second, 80), one(20 * second),
			[]Fault{{Kind: EtcdHang, At: 4 * second, For: 3 * second}, {Kind: Drain, At: 5 * second, Node: "a"}, {Kind: Crash, At: 9 * second, Node: "b"}}},
		"two that stop are gone later, no etcd": {"log", join(at(7*second, 20), at(9*second, 20)), one(9 * second),
			[]Fault{{Kind: EtcdHang, At: 4 * second, For: 6 * second}, {Kind: Drain, At: 5 * second, Node: "a"}, {Kind: Restart, At: 5 * second, Node: "b"}}},
		"a death behind a cut": {"fixed-hour", join(at(5*second, 10), at(9*second, 15), at(20*second, 30+40)), one(20 * second),
			[]Fault{{Kind: OneWay, At: 8 * second, For: 3 * second, Node: "b", Other: "a"}, {Kind: Crash, At: 10 * second, Node: "a"}}},
		"a death soon after a cut": {"fixed-hour", join(at(5*second, 10), at(9*second, 15), at(20*second, 30)), one(20 * second),
			[]Fault{{Kind: Join, At: 4 * second, Node: "d"}, {Kind: OneWay, At: 8 * second, For: time.Second, Node: "b", Other: "a"}, {Kind: Crash, At: 10 * second, Node: "a"}}},
		"a death, a cut elsewhere": {"fixed-hour", join(at(9950*time.Millisecond, 20), at(20*second, 24)), one(20 * second),
			[]Fault{{Kind: Join, At: 4 * second, Node: "d"}, {Kind: OneWay, At: 8 * second, For: second, Node: "b", Other: "c"}, {Kind: Crash, At: 10 * second, Node: "a"}}},
		"a drain and a death": {"fixed-hour", at(20*second, 40), one(20 * second), []Fault{{Kind: Drain, At: 5 * second, Node: "a"}, {Kind: Crash, At: 9 * second, Node: "b"}}},
		"no relay": {"fixed-hour", at(20*second, 80), one(20 * second),
			[]Fault{{Kind: OneWay, At: 10 * second, For: 3 * second, Node: "a", Other: "b"}, {Kind: Restart, At: 11 * second, Node: "c"}}},
		"no relay yet": {"fixed-hour", at(20*second, 80), one(20 * second),
			[]Fault{{Kind: OneWay, At: 7 * second, For: 2 * second, Node: "b", Other: "c"}, {Kind: OneWay, At: 10 * second, For: 3 * second, Node: "a", Other: "b"}}},
		"a relay again": {"fixed-hour", at(20*second, 40), one(20 * second),
			[]Fault{{Kind: OneWay, At: 4 * second, For: 2 * second, Node: "b", Other: "c"}, {Kind: OneWay, At: 10 * second, For: 3 * second, Node: "a", Other: "b"}}},
		"a relay": {"fixed-hour", at(20*second, 40), one(20 * second),
			[]Fault{{Kind: Join, At: 4 * second, Node: "d"}, {Kind: OneWay, At: 10 * second, For: 3 * second, Node: "a", Other: "b"}, {Kind: Restart, At: 11 * second, Node: "c"}}},
		"bucket, of copies": {"bucket", join(at(5*second, 31), copied(at(6*second, 1)), copied(at(8*second, 1)), at(8*second, 6+2-2)), one(8 * second), nil},
		"reset, no relay": {"fixed-hour", join(at(5*second, 38), copied(at(10*second, 5))), at(20*second, 3),
			[]Fault{{Kind: Restart, At: 9 * second, Node: "c"}, {Kind: Reset, At: 10 * second, Node: "a", Other: "b"}}},
		"reset": {"fixed-hour", join(at(5*second, 35), copied(at(10*second, 5))), one(20 * second), []Fault{{Kind: Reset, At: 10 * second, Node: "a", Other: "b"}}},
		"split": {"fixed-hour", at(20*second, 80), one(20 * second), []Fault{{Kind: Split, At: 10 * second, For: second}}},
		"split, and a death": {"fixed-hour", at(20*second, 120), one(20 * second),
			[]Fault{{Kind: Split, At: 10 * second, For: second}, {Kind: Crash, At: 10500 * time.Millisecond, Node: "c"}}},
		"split, after a death": {"fixed-hour", at(20*second, 80), one(20 * second),
			[]Fault{{Kind: Crash, At: 9 * second, Node: "c"}, {Kind: Split, At: 10 * second, For: second}}},
		"split of one, and its death": {"fixed-hour", at(20*second, 80), one(20 * second),
			[]Fault{{Kind: Split, At: 10 * second, For: second, Group: []string{"c"}}, {Kind: Crash, At: 10500 * time.Millisecond, Node: "c"}}},
		"a death while another one stops, and etcd is gone": {"fixed-hour", at(20*second, 80), one(20 * second),
			[]Fault{{Kind: Restart, At: 5 * second, Node: "c"}, {Kind: Crash, At: 6 * second, For: 30 * second, Node: "b"}, {Kind: EtcdStop, At: 9 * second, For: second}}},
		"slowly relayed": {"fixed-hour", join(at(5*second, 40), copied(at(11*second, 2))), one(20 * second),
			[]Fault{{Kind: OneWay, At: 10 * second, For: 3 * second, Node: "a", Other: "b"}, {Kind: Slow, At: 11 * second, For: second, Node: "c", Other: "a"}}},
		"slowly relayed by the owner": {"fixed-hour", at(11*second, 40), one(11 * second),
			[]Fault{{Kind: OneWay, At: 10 * second, For: 3 * second, Node: "a", Other: "b"}, {Kind: Slow, At: 11 * second, For: second, Node: "c", Other: "a"}}},
		"a cut and a death": {"fixed-hour", at(20*second, 80), one(20 * second),
			[]Fault{{Kind: Join, At: 4 * second, Node: "d"}, {Kind: Crash, At: 9 * second, Node: "c"}, {Kind: OneWay, At: 10 * second, For: 3 * second, Node: "a", Other: "b"}}},
		"a cut after a death": {"fixed-hour", at(20*second, 40), one(20 * second),
			[]Fault{{Kind: Join, At: 4 * second, Node: "d"}, {Kind: Crash, At: 4 * second, Node: "c"}, {Kind: OneWay, At: 13 * second, For: second, Node: "a", Other: "b"}}},
		"slow elsewhere": {"fixed-hour", at(20*second, 40), one(20 * second),
			[]Fault{{Kind: OneWay, At: 10 * second, For: 3 * second, Node: "a", Other: "b"}, {Kind: Slow, At: 14 * second, For: second, Node: "c", Other: "a"}}},
		"split, of a bucket": {"gcra", join(at(5*second, 21), at(10*second, 10+20+10)), one(10 * second), []Fault{{Kind: Split, At: 5 * second, For: second}}},
		"exile":              {"fixed", at(11*second, 24), at(11*second, 1), []Fault{{Kind: Exile, At: 10 * second, For: 3 * second}}},
		"exile, over":        {"fixed", at(14*second, 36), at(14*second, 1), []Fault{{Kind: Exile, At: 10 * second, For: 3 * second}}},
		"split, later":       {"fixed", at(21*second, 12), one(21 * second), []Fault{{Kind: Stall, At: 10 * second, For: second}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Plan{Start: []string{"a", "b", "c"}, Faults: tc.faults}
			k := Key{Rule: named(t, tc.rule)}
			if e, found := p.Excess(k, tc.hits, time.Unix(0, 0)); found {
				t.Errorf("false alarm: %v", e)
			}
			if e, found := p.Excess(k, join(tc.hits, tc.more), time.Unix(0, 0)); !found || e.Granted != e.Allowed+e.Extra+1 {
				t.Errorf("one more: %v %v", e, found)
			}
		})
	}
}

// paced returns n hits that go on every half second from 5 s on: asked when they go on,
// or at once and told to wait.
func paced(n int, when func(h *Hit, d time.Duration)) []Hit {
	hits := at(5*second, n)
	for i := range hits {
		when(&hits[i], time.Duration(i)*second/2)
	}
	return hits
}

func asked(h *Hit, d time.Duration) { h.From, h.To = h.From+d, h.To+d }

func waiting(h *Hit, d time.Duration) { h.Wait = d }

// Clocks that differ move windows by as much, and give buckets what flows in meanwhile, and no more than that.
func TestExcessOfClocksThatDiffer(t *testing.T) {
	p := Plan{Start: []string{"a", "b"}, Clocks: map[string]time.Duration{"a": 300 * time.Millisecond, "b": -300 * time.Millisecond}}
	for _, tc := range []struct {
		rule string
		hits []Hit // all that is allowed
		more []Hit // what is not
	}{
		{"fixed", join(at(5*second, 12), at(7500*time.Millisecond, 12)), at(7300*time.Millisecond, 1)},
		{"log", join(at(5*second, 20), at(10400*time.Millisecond, 20)), at(10399*time.Millisecond, 1)},
		{"bucket", join(at(5*second, 31), at(10*second, 11)), at(10*second, 1)},
	} {
		k := Key{Rule: named(t, tc.rule)}
		if e, found := p.Excess(k, tc.hits, time.Unix(0, 0)); found {
			t.Errorf("%s: false alarm: %v", tc.rule, e)
		}
		if e, found := p.Excess(k, join(tc.hits, tc.more), time.Unix(0, 0)); !found || e.Granted != e.Allowed+1 {
			t.Errorf("%s: one more: %v %v", tc.rule, e, found)
		}
	}
}

// TestRulesHaveAllAlgorithms holds that the simulation plays every algorithm.
func TestRulesHaveAllAlgorithms(t *testing.T) {
	for _, name := range algorithms.Names() {
		if !slices.ContainsFunc(Rules, func(r Rule) bool { return r.Algorithm == name }) {
			t.Errorf("%s: missing in Rules, in test/sim/load.go", name)
		}
	}
}
