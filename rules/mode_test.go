package rules

import (
	"fmt"
	"testing"

	"github.com/weirlimit/weir/algorithms"
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

// raise knows which algorithms have a burst, and Validate which have a delay.
func TestRaiseOfEveryAlgorithm(t *testing.T) {
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
