package rules

import (
	"testing"

	"github.com/weirlimit/weir/algorithms"
)

func TestUnlimited(t *testing.T) {
	set := parse(t, `
domain: d
rules:
  - {id: users, per: [user], limits: [{limit: 10, window: 1s}]}
  - {id: all, limits: [{limit: 100, window: 1s}]}
  - {id: staff, when: {user: [ann, bob]}, unlimited: true}
  - {id: blocked, when: {user: bob}, limits: [{limit: 5, window: 1m}, {limit: 0, window: 1s}]}
  - {id: partner, when: {user: "p*"}, unlimited: true, replaces: [users]}
  - {id: probe, when: {user: "*", path: /health}, unlimited: true, replaces: [users, all, blocked]}
  - {id: off, when: {user: eve}, unlimited: true, enabled: false}
`)
	for _, c := range []struct{ what, user, path, want string }{
		{"nothing exempts", "carl", "/", "users[0] all[0]"},
		{"exempt from all", "ann", "/", "staff[-1]"},
		{"but not from what blocks", "bob", "/", "blocked[0] blocked[1]"},
		{"exempt from what is listed", "pam", "/", "all[0]"},
		{"exempt from what is listed, which is all", "carl", "/health", "probe[-1]"},
		{"two exempt: the first one is told", "ann", "/health", "staff[-1]"},
		{"what blocks may be listed", "bob", "/health", "staff[-1]"},
		{"disabled", "eve", "/", "users[0] all[0]"},
	} {
		got := set.Match(testHasher, request("d", "user="+c.user, "path="+c.path), nil)
		if matched(got) != c.want {
			t.Errorf("%s: %s, want %s", c.what, matched(got), c.want)
		}
		for _, m := range got {
			if m.Limit < 0 && m.Held() != (algorithms.Limit{}) {
				t.Errorf("%s: held against %v", c.what, m.Held())
			}
		}
	}
}

func TestReplaces(t *testing.T) {
	set := parse(t, `
domain: d
rules:
  - {id: vip, when: {user: ann}, per: [user], limits: [{limit: 100, window: 1s}], replaces: [users, trial]}
  - {id: users, per: [user], limits: [{limit: 10, window: 1s}, {limit: 50, window: 1m}], replaces: [all]}
  - {id: all, limits: [{limit: 1000, window: 1s}]}
  - {id: trial, when: {plan: trial}, limits: [{limit: 1, window: 1s}]}
  - {id: off, replaces: [all], limits: [{limit: 1, window: 1s}], enabled: false}
---
domain: e
rules: [{id: all, limits: [{limit: 1, window: 1s}]}]
`)
	for _, c := range []struct {
		what string
		req  *Request
		want string
	}{
		{"nothing that replaces", request("d"), "all[0]"},
		{"one", request("d", "user=bob"), "users[0] users[1]"},
		{"what is replaced still replaces", request("d", "user=ann"), "vip[0]"},
		{"several are replaced", request("d", "user=ann", "plan=trial"), "vip[0]"},
		{"not what is not listed", request("d", "user=bob", "plan=trial"), "users[0] users[1] trial[0]"},
		{"another domain", request("e", "user=bob"), "all[0]"},
	} {
		if got := matched(set.Match(testHasher, c.req, nil)); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
