package rules

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

var testHasher = ring.NewHasher([ring.SecretSize]byte{7, 1})

// request makes attributes of "key=value" texts.
func request(domain string, attributes ...string) *Request {
	req := &Request{Domain: domain}
	for _, a := range attributes {
		key, value, _ := strings.Cut(a, "=")
		req.Attributes = append(req.Attributes, Attribute{Key: key, Value: value})
	}
	return req
}

func TestCondition(t *testing.T) {
	for _, c := range []struct {
		when, attributes string
		want             bool
	}{
		{`{}`, "", true},
		{`{}`, "a=x", true},
		{`{a: x}`, "a=x", true},
		{`{a: x}`, "a=X", false},
		{`{a: x}`, "a=xx", false},
		{`{a: x}`, "a=", false},
		{`{a: x}`, "b=x", false},
		{`{a: x}`, "b=y a=x", true},
		{`{a: ""}`, "a=", true},
		{`{a: ""}`, "", false},
		{`{a: "*"}`, "a=", true},
		{`{a: "*"}`, "a=x", true},
		{`{a: "*"}`, "", false},
		{`{a: /api/*}`, "a=/api/", true},
		{`{a: /api/*}`, "a=/api/v1", true},
		{`{a: /api/*}`, "a=/api", false},
		{`{a: /api/*}`, "", false},
		{`{a: "re:[xy]+"}`, "a=xyx", true},
		{`{a: "re:[xy]+"}`, "a=xyz", false},
		{`{a: "re:[xy]+"}`, "a=zxy", false},
		{`{a: "re:[xy]+"}`, "", false},
		{`{a: "re:x|y"}`, "a=y", true},
		{`{a: "re:/v1/.*"}`, "a=/v1/a\nb", true},
		{`{a: "re:/v1/.*"}`, "a=/v1/a\n", true},
		{`{a: "re:(?-s:/v1/.*)"}`, "a=/v1/a\n", false},
		{`{a: "re:x|y"}`, "a=xz", false},
		{`{a: "re:(?i)get"}`, "a=GET", true},
		{`{a: 're:(?m)^x$'}`, "a=x\nx", false},
		{`{a: 're:/a\*b'}`, "a=/a*b", true},
		{`{a: "re:re:x"}`, "a=re:x", true},
		{`{a: [x, y]}`, "a=y", true},
		{`{a: [x, y]}`, "a=z", false},
		{`{a: [x, /p/*, "re:q+"]}`, "a=/p/1", true},
		{`{a: [x, /p/*, "re:q+"]}`, "a=qq", true},
		{`{a: [x, /p/*, "re:q+"]}`, "a=p", false},
		{`{a: [/p/*, /p/q/*, /p/x]}`, "a=/p/q/x", true},
		{`{a: [/p/*, /p/q/*, /p/x]}`, "a=/p/x", true},
		{`{a: [b*, a*, aa, c]}`, "a=ab", true},
		{`{a: {absent: true}}`, "", true},
		{`{a: {absent: true}}`, "b=x", true},
		{`{a: {absent: true}}`, "a=", false},
		{`{a: absent}`, "a=absent", true},
		{`{a: absent}`, "", false},
		{`{a: x, b: y}`, "a=x b=y", true},
		{`{a: x, b: y}`, "a=x b=z", false},
		{`{a: x, b: y}`, "a=x", false},
		{`{a: x, b: y, c: z}`, "a=x b=y c=z", true},
		{`{a: x, b: y, c: z}`, "a=q b=y c=z", false},
		{`{a: x, b: y, c: z}`, "a=x b=q c=z", false},
		{`{a: x, b: y, c: z}`, "a=x b=y c=q", false},
		{`{a: x, b: y, c: z}`, "a=x b=y", false},
		{`{a: x, b: {absent: true}}`, "a=x", true},
		{`{a: x, b: {absent: true}}`, "a=x b=y", false},
	} {
		set := parse(t, oneRule("{id: r, when: "+c.when+", limits: [{limit: 1, window: 1s}]}"))
		req := &Request{Domain: "d"}
		for a := range strings.SplitSeq(c.attributes, " ") {
			if key, value, ok := strings.Cut(a, "="); ok {
				req.Attributes = append(req.Attributes, Attribute{Key: key, Value: value})
			}
		}
		if got := len(set.Match(testHasher, req, nil)) == 1; got != c.want {
			t.Errorf("when %s: %q matches %t, want %t", c.when, c.attributes, got, c.want)
		}
	}
}

// matched names the limits of an answer, with the set of attributes if there are
// several.
func matched(ms []Match) string {
	var names []string
	for _, m := range ms {
		per := ""
		if len(m.Rule.Per) > 1 {
			per = fmt.Sprint("/", m.Per)
		}
		names = append(names, fmt.Sprintf("%s%s[%d]", m.Rule.ID, per, m.Limit))
	}
	return strings.Join(names, " ")
}

func TestMatch(t *testing.T) {
	set := parse(t, `
domain: shop
rules:
  - {id: posts, when: {endpoint: /posts}, per: [user], limits: [{limit: 1, window: 1s}, {limit: 2, window: 1m}]}
  - {id: all, limits: [{limit: 3, window: 1s}]}
  - {id: prefix, when: {endpoint: /p*}, limits: [{limit: 4, window: 1s}]}
  - {id: longer, when: {endpoint: /po*}, limits: [{limit: 4, window: 1s}]}
  - {id: off, when: {endpoint: /posts}, enabled: false, limits: [{limit: 5, window: 1s}]}
  - {id: pair, per: [user, ip], limits: [{limit: 6, window: 1s}]}
  - {id: either, when: {endpoint: /hybrid}, per: [[user], [ip]], limits: [{limit: 7, window: 1s}, {limit: 8, window: 1m}]}
---
domain: other
rules: [{id: posts, limits: [{limit: 0, window: 1s}]}]
`)
	for _, c := range []struct {
		req  *Request
		want string
	}{
		{request("shop"), "all[0]"},
		{request("shop", "user=u"), "all[0]"},
		{request("shop", "endpoint=/posts"), "all[0] prefix[0] longer[0]"},
		{request("shop", "endpoint=/posts", "user=u"), "posts[0] posts[1] all[0] prefix[0] longer[0]"},
		{request("shop", "user=u", "ip=i"), "all[0] pair[0]"},
		{request("shop", "user=", "ip="), "all[0] pair[0]"},
		{request("shop", "endpoint=/hybrid"), "all[0]"},
		{request("shop", "endpoint=/hybrid", "ip=i"), "all[0] either/0[0] either/0[1]"},
		{request("shop", "endpoint=/hybrid", "user=u"), "all[0] either/1[0] either/1[1]"},
		{request("shop", "endpoint=/hybrid", "user=u", "ip=i"), "all[0] pair[0] either/0[0] either/0[1] either/1[0] either/1[1]"},
		{request("other", "endpoint=/posts"), "posts[0]"},
		{request(""), ""},
		{request("default"), ""},
	} {
		if got := matched(set.Match(testHasher, c.req, nil)); got != c.want {
			t.Errorf("%v: %q, want %q", *c.req, got, c.want)
		}
	}
}

func TestMatchAppends(t *testing.T) {
	set := parse(t, oneRule("{id: r, limits: [{limit: 1, window: 1s}]}"))
	before := Match{Limit: 42}
	if got := set.Match(testHasher, request("d"), []Match{before}); len(got) != 2 || got[0] != before || got[1].Rule.ID != "r" {
		t.Errorf("got %v", got)
	}
	var zero Set
	if got := zero.Match(testHasher, request("d"), []Match{before}); len(got) != 1 {
		t.Errorf("the zero Set matches: %v", got)
	}
}

func TestMatchDoesNotAllocate(t *testing.T) {
	long := strings.Repeat("v", maxValue)
	var names, attributes []string
	for i := range maxPer {
		names = append(names, fmt.Sprintf("%d-%s", i, strings.Repeat("n", 60)))
		attributes = append(attributes, names[i]+"="+long)
	}
	set := parse(t, fmt.Sprintf(`
domain: d
rules:
  - {id: a, when: {endpoint: /a}, per: [user], limits: [{limit: 1, window: 1s}, {limit: 1, window: 2s}]}
  - {id: b, when: {endpoint: "/*"}, limits: [{limit: 1, window: 1s}]}
  - {id: c, when: {user: "re:[a-z]*"}, limits: [{limit: 1, window: 1s}]}
  - {id: d, when: {method: [GET, POST]}, limits: [{limit: 1, window: 1s}]}
  - {id: e, per: [%s], limits: [{limit: 1, window: 1s}]}
`, strings.Join(names, ", ")))
	for _, c := range []struct {
		req  *Request
		want string
	}{
		{request("d", "method=GET", "user=alice", "endpoint=/a"), "a[0] a[1] b[0] c[0] d[0]"},
		{request("d", attributes...), "e[0]"},
	} {
		var buf [16]Match
		if got := matched(set.Match(testHasher, c.req, buf[:0])); got != c.want {
			t.Errorf("matches %s, want %s", got, c.want)
		}
		if n := testing.AllocsPerRun(100, func() { set.Match(testHasher, c.req, buf[:0]) }); n != 0 && !racing() {
			t.Errorf("%s: %v allocations", c.want, n)
		}
	}
}

// Values beyond the bounds must cost, not break.
func TestMatchHugeValue(t *testing.T) {
	set := parse(t, oneRule("{id: r, when: {user: x*}, per: [user], limits: [{limit: 1, window: 1s}]}"))
	huge := "user=" + strings.Repeat("x", 1<<20)
	a, b := set.Match(testHasher, request("d", huge), nil), set.Match(testHasher, request("d", huge+"y"), nil)
	if len(a) != 1 || len(b) != 1 || a[0].Key == b[0].Key {
		t.Errorf("got %v and %v", a, b)
	}
}

func TestMatchLimitValue(t *testing.T) {
	set := parse(t, oneRule("{id: r, limits: [{limit: 0, window: 1m}]}"))
	m := set.Match(testHasher, request("d"), nil)[0]
	want := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 0, Window: 60e9}
	if got := m.Rule.Limits[m.Limit]; got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
