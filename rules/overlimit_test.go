package rules

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

func TestHeld(t *testing.T) {
	for _, c := range []struct {
		limit, mode string
		above       int64
		want        algorithms.Limit // of Limit and Burst
	}{
		{"limit: 10", "hard", 0, algorithms.Limit{Limit: 10}},
		{"limit: 10", "{soft: {over: 10%}}", 1, algorithms.Limit{Limit: 11}},
		{"limit: 19", "{soft: {over: 10%}}", 1, algorithms.Limit{Limit: 20}},
		{"limit: 9", "{soft: {over: 10%}}", 0, algorithms.Limit{Limit: 9}},
		{"limit: 0", "{soft: {over: 1000%}}", 0, algorithms.Limit{}},
		{"limit: 10, algorithm: fixed_window", "{soft: {over: 100%}}", 10, algorithms.Limit{Limit: 20}},
		{"limit: 10, algorithm: token_bucket", "{soft: {over: 10%}}", 1, algorithms.Limit{Limit: 10, Burst: 11}},
		{"limit: 10, algorithm: token_bucket, burst: 50", "{soft: {over: 10%}}", 5, algorithms.Limit{Limit: 10, Burst: 55}},
		{"limit: 10, algorithm: gcra, burst: 5", "{soft: {over: 50%}}", 2, algorithms.Limit{Limit: 10, Burst: 7}},
		{"limit: 10, algorithm: leaky_bucket, burst: 4", "{soft: {over: 50%}}", 2, algorithms.Limit{Limit: 10, Burst: 6}},
		{"limit: 10, algorithm: sliding_window_log", "{soft: {over: 50%}}", 5, algorithms.Limit{Limit: 15}},
		{"limit: 10, algorithm: sliding_window_buckets, buckets: 7", "{soft: {over: 50%}}", 5, algorithms.Limit{Limit: 15, Buckets: 7}},
		{"limit: 10", "{elastic: {parent: p, up_to: 150%}}", 5, algorithms.Limit{Limit: 15}},
		{"limit: 10, algorithm: gcra", "{elastic: {parent: p, up_to: 101%}}", 0, algorithms.Limit{Limit: 10}},
	} {
		text := oneRule(fmt.Sprintf("{id: r, limits: [{%s, window: 1s}], mode: %s}", c.limit, c.mode)) +
			"- {id: p, limits: [{limit: 1, window: 1s}]}\n"
		m := parse(t, text).Match(testHasher, request("d"), nil)[0]
		c.want.Algorithm, c.want.Window = m.Rule.Limits[0].Algorithm, 1e9
		if m.Above != c.above || m.Held() != c.want {
			t.Errorf("%s, %s: %d above, %v, want %d, %v", c.limit, c.mode, m.Above, m.Held(), c.above, c.want)
		}
		if n := testing.AllocsPerRun(100, func() { _ = m.Held() }); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// raise and delaying know which algorithms have a burst and a delay.
func TestEveryAlgorithm(t *testing.T) {
	for _, name := range algorithms.Names() {
		algorithm, _ := algorithms.Parse(name)
		limit := algorithms.Limit{Algorithm: algorithm, Limit: 10, Window: 1e9}
		if raised, above := raise(limit, 10); above != 1 || raised.Validate() != nil || raised.Capacity() != 11 {
			t.Errorf("%s: %v is %d above, %v", name, raised, above, raised.Validate())
		}
		limit.Burst = 20
		if raised, _ := raise(limit, 10); limit.Validate() == nil && (raised.Capacity() != 22 || raised.Limit != 10) {
			t.Errorf("%s: a burst of 20 becomes %v", name, raised)
		}
		limit.Burst, limit.MaxDelay = 0, 1e9
		if has := limit.Validate() == nil; has != algorithm.Drains() {
			t.Errorf("%s has delays: %t", name, has)
		}
	}
}

func TestElastic(t *testing.T) {
	set := parse(t, `
domain: d
rules:
  - {id: team, when: {team: "*"}, limits: [{limit: 10, window: 1s}, {limit: 100, window: 1m}], mode: {elastic: {parent: org, up_to: 150%}}}
  - {id: org, when: {org: "*"}, limits: [{limit: 1000, window: 1s}]}
  - {id: free, when: {free: "*"}, unlimited: true, replaces: [org]}
  - {id: squad, when: {squad: "*"}, limits: [{limit: 10, window: 1s}], mode: {elastic: {parent: trial, up_to: 150%}}}
  - {id: trial, when: {squad: "*"}, limits: [{limit: 1000, window: 1s}], enforce: 0}
`)
	for _, c := range []struct {
		req  *Request
		want string
	}{
		{request("d", "team=t"), "team 0 0"},
		{request("d", "team=t", "org=o"), "team 5 50 org 0"},
		{request("d", "team=t", "org=o", "free=f"), "team 0 0"}, // the parent is replaced
		{request("d", "squad=s"), "squad 0 trial 0"},            // the parent denies nothing
	} {
		got, last := "", ""
		for _, m := range set.Match(testHasher, c.req, nil) {
			if m.Rule.ID != last {
				got += " " + m.Rule.ID
			}
			got += fmt.Sprint(" ", m.Above)
			last = m.Rule.ID
		}
		if got != " "+c.want {
			t.Errorf("%v:%s, want %s", c.req.Attributes, got, c.want)
		}
	}
}

func TestEnforced(t *testing.T) {
	for _, c := range []struct {
		lo   uint64
		from int64 // the least percentage that enforces it
	}{
		{0, 1},
		{1<<32 - 1, 1}, // the low half does not matter
		{42949672 << 32, 1},
		{42949673 << 32, 2}, // 1 % of 2^32 is 42949672.96
		{1 << 63, 51},
		{1<<64 - 1, 100},
	} {
		for percent := range int64(101) {
			if got := enforced(ring.Key{Hi: 42, Lo: c.lo}, percent); got != (percent >= c.from) {
				t.Errorf("enforced(%#x, %d) is %t", c.lo, percent, got)
			}
		}
	}
}

// The same users stay enforced when the percentage is raised, as many as it says,
// and with all limits of the rule.
func TestEnforcedUsersGrowWithPercentage(t *testing.T) {
	const users = 10_000
	before := make(map[int]bool)
	for _, percent := range []int{0, 1, 20, 50, 99, 100} {
		set := parse(t, oneRule(fmt.Sprintf("{id: r, per: [user], limits: [{limit: 1, window: 1s}, {limit: 2, window: 1m}], enforce: %d}", percent)))
		enforced := make(map[int]bool)
		for user := range users {
			ms := set.Match(testHasher, request("d", fmt.Sprint("user=", user)), nil)
			if len(ms) != 2 || ms[0].Shadow != ms[1].Shadow {
				t.Fatalf("%d matches of user %d", len(ms), user)
			}
			if !ms[0].Shadow {
				enforced[user] = true
			} else if before[user] {
				t.Errorf("user %d is not enforced at %d %% any more", user, percent)
			}
		}
		if want := users * percent / 100; len(enforced) < want-200 || len(enforced) > want+200 || percent%100 == 0 && len(enforced) != want {
			t.Errorf("%d of %d users at %d %%", len(enforced), users, percent)
		}
		before = enforced
	}
}

func TestCost(t *testing.T) {
	const prefix = `attribute "size" is the cost of rule "r": `
	for _, c := range []struct {
		cost, size string
		tokens     int64
		want       int64
		err        string
	}{
		{"1", "", 3, 3, ""},
		{"7", "", 3, 21, ""},
		{"7", "", -3, -21, ""},
		{"0", "", 3, 0, ""},
		{"2147483648", "", 1, 2147483648, ""},
		{"size", "", 3, 3, ""},
		{"size", "size=5", 3, 15, ""},
		{"size", "size=5", 0, 0, ""},
		{"size", "size=5", -1, -5, ""},
		{"size", "size=0", 3, 0, ""},
		{"size", "size=2147483648", -1, -2147483648, ""},
		{"size", "size=2147483649", 1, 0, prefix + `"2147483649" is not a whole number between 0 and 2147483648`},
		{"size", "size=99999999999999999999", 1, 0, prefix + `"99999999999999999999" is not a whole number between 0 and 2147483648`},
		{"size", "size=", 1, 0, prefix + `"" is not a whole number between 0 and 2147483648`},
		{"size", "size=-1", 1, 0, prefix + `"-1" is not a whole number between 0 and 2147483648`},
		{"size", "size=1.5", 1, 0, prefix + `"1.5" is not a whole number between 0 and 2147483648`},
		{"size", "size=2147483648", 2, 0, prefix + `2147483648 times 2 tokens are more than 2147483648`},
		{"2147483648", "", 2147483648, 0, `the cost of rule "r": 2147483648 times 2147483648 tokens are more than 2147483648`},
		{"2147483648", "", -2, 0, `the cost of rule "r": 2147483648 times -2 tokens are more than 2147483648`},
		{"1", "", 2147483649, 0, `2147483649 tokens are not between -2147483648 and 2147483648`},
		{"0", "", -1 << 63, 0, `-9223372036854775808 tokens are not between -2147483648 and 2147483648`},
	} {
		set := parse(t, oneRule("{id: r, limits: [{limit: 1, window: 1s}], cost: "+c.cost+"}"))
		req := request("d")
		if c.size != "" {
			req = request("d", c.size)
		}
		rule := set.rules[0]
		got, err := rule.Cost(req, c.tokens)
		if got != c.want || (err != nil || c.err != "") && (err == nil || err.Error() != c.err) {
			t.Errorf("%d tokens at %s, %q: %d, %v, want %d, %s", c.tokens, c.cost, c.size, got, err, c.want, c.err)
		}
		if n := testing.AllocsPerRun(100, func() { _, _ = rule.Cost(req, c.tokens) }); n != 0 && err == nil {
			t.Errorf("%v allocations", n)
		}
	}
}
