package rules

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestExplainStrict(t *testing.T) {
	set := parse(t, `
domain: d
rules:
  - {id: strict, per: [user], durability: strict, limits: [{limit: 1, window: 1s}]}
  - {id: relaxed, durability: relaxed, limits: [{limit: 1, window: 1s}]}
`)
	for _, c := range []struct {
		req    *Request
		reason string
		limits int
	}{
		{request("d", "user=u"), "is strict: answers may wait for the standby", 1},
		{request("d"), "the request has no attribute user", 0},
	} {
		e := set.Explain(testHasher, c.req)
		if e[0].Reason != c.reason || len(e[0].Matches) != c.limits || e[1].Reason != "" || !e[1].Applies {
			t.Errorf("%+v", e)
		}
	}
}

func TestExplain(t *testing.T) {
	set := parse(t, `
domain: d
rules:
  - {id: posts, when: {endpoint: "/api/*", method: [POST, PUT]}, per: [user], limits: [{limit: 1, window: 1s}, {limit: 2, window: 1m}]}
  - {id: hybrid, per: [[ip], [user]], limits: [{limit: 1, window: 1s}]}
  - {id: off, limits: [{limit: 1, window: 1s}], enabled: false}
  - {id: all, limits: [{limit: 1, window: 1s}]}
  - {id: vip, when: {user: "v*"}, limits: [{limit: 9, window: 1s}], replaces: [all]}
  - {id: staff, when: {user: [s1, s2, s3, s4, s5, s6, s7]}, unlimited: true}
  - {id: probation, when: {user: s2}, limits: [{limit: 1, window: 1s}], replaces: [staff]}
  - {id: blocked, when: {ip: 10.0.0.0/8}, limits: [{limit: 0, window: 1s}]}
  - {id: debug, when: {debug: {absent: true}, "the plan": free}, limits: [{limit: 1, window: 1s}]}
---
domain: e
rules: [{id: other, limits: [{limit: 1, window: 1s}]}]
`)
	for _, c := range []struct {
		req  *Request
		want string
	}{
		{request("d"), `
posts: the request has no attribute endpoint
hybrid: the request has no attribute ip and no attribute user
off: is disabled
all[0]
vip: the request has no attribute user
staff: the request has no attribute user
probation: the request has no attribute user
blocked: the request has no attribute ip
debug: the request has no attribute "the plan"`},
		{request("d", "endpoint=/api/x", "method=GET", "user=val", "ip=[::ffff:a01:203]:80", "debug=1"), `
posts: method is "GET", not "POST" or "PUT"
hybrid/0[0] hybrid/1[0]
off: is disabled
all: replaced by rule "vip"
vip[0]
staff: user is "val", not "s1" or "s2" or "s3" or "s4" or "s5" or one of 2 more
probation: user is "val", not "s2"
blocked[0]
debug: debug is "1", not absent`},
		{request("d", "endpoint=/x", "user=s7", "ip=2001:DB8::1", "the plan=paid"), `
posts: endpoint is "/x", not "/api/*"
hybrid: rule "staff" exempts the request
off: is disabled
all: rule "staff" exempts the request
vip: user is "s7", not "v*"
staff[-1]
probation: user is "s7", not "s2"
blocked: ip is "2001:db8::1", not "10.0.0.0/8"
debug: "the plan" is "paid", not "free"`},
		{request("d", "user=s1", "ip=10.0.0.1"), `
posts: the request has no attribute endpoint
hybrid: rule "staff" exempts the request
off: is disabled
all: rule "staff" exempts the request
vip: user is "s1", not "v*"
staff applies
probation: user is "s1", not "s2"
blocked[0]
debug: the request has no attribute "the plan"`},
		{request("d", "user=s2"), `
posts: the request has no attribute endpoint
hybrid/1[0]
off: is disabled
all[0]
vip: user is "s2", not "v*"
staff: replaced by rule "probation"
probation[0]
blocked: the request has no attribute ip
debug: the request has no attribute "the plan"`},
		{request("x"), ""},
	} {
		var lines []string
		for _, e := range set.Explain(testHasher, c.req) {
			line := e.Rule.ID + ": " + e.Reason
			switch {
			case len(e.Matches) > 0:
				line = matched(e.Matches)
			case e.Applies:
				line = e.Rule.ID + " applies"
			}
			lines = append(lines, line)
		}
		if got := strings.Join(lines, "\n"); got != strings.TrimPrefix(c.want, "\n") {
			t.Errorf("%v:\n%s\nwant%s", c.req.Attributes, got, c.want)
		}
	}
}

// What Explain says is what Match does.
func TestExplainAsMatch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		docs := someDocuments(t)
		set, err := Compile("docs", docs)
		if err != nil {
			t.Fatal(err)
		}
		req := someRequest(t)
		var together []Match
		for _, e := range set.Explain(testHasher, req) {
			together = append(together, e.Matches...)
			special := e.Applies && e.Rule.Durability == Strict
			if e.Applies && !special == (e.Reason != "") || !e.Applies && e.Reason == "" || e.Applies && len(e.Matches) == 0 && !e.Rule.Unlimited || !e.Applies && len(e.Matches) > 0 {
				t.Fatalf("%v: rule %s matches %t, %q, %v\n%s", *req, e.Rule.ID, e.Applies, e.Reason, e.Matches, pretty(docs))
			}
		}
		if got := set.Match(testHasher, req, nil); !slices.Equal(got, together) {
			t.Fatalf("%v matches %s, explained are %s\n%s", *req, matched(got), matched(together), pretty(docs))
		}
	})
}
