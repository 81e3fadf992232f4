package rules

import (
	"slices"
	"testing"
)

func TestCounters(t *testing.T) {
	set := parse(t, `
domain: d
rules:
  - {id: posts, when: {endpoint: /posts}, per: [user], limits: [{limit: 1, window: 1s}, {limit: 2, window: 1m}]}
  - {id: pair, per: [user, ip], limits: [{limit: 1, window: 1s}]}
  - {id: hybrid, when: {debug: {absent: true}}, per: [[ip], [user]], limits: [{limit: 1, window: 1s}], mode: {soft: {over: 100%}}, enforce: 0}
  - {id: alice, when: {user: alice, ip: 10.0.0.0/8}, per: [user], limits: [{limit: 1, window: 1s}], replaces: [posts]}
  - {id: all, limits: [{limit: 1, window: 1s}]}
  - {id: free, when: {user: alice}, unlimited: true}
  - {id: off, per: [user], limits: [{limit: 1, window: 1s}], enabled: false}
---
domain: e
rules: [{id: other, per: [user], limits: [{limit: 1, window: 1s}]}]
`)
	for _, c := range []struct {
		req  *Request
		want string
	}{
		{request("d"), ""},
		{request("d", "user=alice"), "posts[0] posts[1] hybrid/1[0] alice[0]"},
		{request("d", "user=bob"), "posts[0] posts[1] hybrid/1[0]"},
		{request("d", "user=bob", "endpoint=/x"), "hybrid/1[0]"},
		{request("d", "user=bob", "debug=1"), "posts[0] posts[1]"},
		{request("d", "user=alice", "ip=11.0.0.1"), "posts[0] posts[1] pair[0] hybrid/0[0] hybrid/1[0]"},
		{request("d", "user=alice", "ip=[::ffff:a00:1]:80"), "posts[0] posts[1] pair[0] hybrid/0[0] hybrid/1[0] alice[0]"},
		{request("e", "user=alice"), "other[0]"},
		{request("x", "user=alice"), ""},
	} {
		before := Match{Limit: 42}
		got := set.Counters(testHasher, c.req, []Match{before})
		if got[0] != before || matched(got[1:]) != c.want {
			t.Errorf("%v chooses %s, want %s", c.req.Attributes, matched(got[1:]), c.want)
		}
	}
	// They are the counters that a check takes.
	full := request("d", "user=bob", "ip=10.0.0.1:80", "endpoint=/posts")
	shown := set.Counters(testHasher, request("d", "user=bob", "ip=10.0.0.1"), nil)
	for _, m := range set.Match(testHasher, full, nil) {
		if m.Rule.ID != "all" && !slices.Contains(shown, m) {
			t.Errorf("%s is not shown", matched([]Match{m}))
		}
	}
	if m := shown[len(shown)-1]; m.Rule.ID != "hybrid" || m.Above != 1 || !m.Shadow {
		t.Errorf("%v is not above its limit, or not a shadow", m)
	}
}
