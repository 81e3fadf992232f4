package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/headers"
	"github.com/weirlimit/weir/shard"
)

// proxy is the address of one that the tests trust, stranger of one that they do not.
const proxy, stranger = "10.0.0.1:5000", "192.0.2.9:5000"

func trustingAuth(t testing.TB, clientIP string) AuthConfig {
	t.Helper()
	proxies, err := ParseTrustedProxies([]string{"10.0.0.0/8", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	attributes, err := ParseAuthAttributes([]string{"user=x-user", "key=X-Api-Key"})
	if err != nil {
		t.Fatal(err)
	}
	return AuthConfig{TrustedProxies: proxies, ClientIPHeader: clientIP, Attributes: attributes}
}

// authRequest reads "METHOD TARGET" and lines of header fields.
func authRequest(from, text string) *http.Request {
	lines := strings.Split(text, "\n")
	method, target, _ := strings.Cut(lines[0], " ")
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr = from
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		r.Header.Add(name, strings.TrimSpace(value))
	}
	return r
}

func TestAuthAttributes(t *testing.T) {
	c := trustingAuth(t, "X-Forwarded-For")
	long := strings.Repeat("x", 257)
	for _, tc := range []struct{ from, request, want string }{
		{stranger, "GET /auth", "ip=192.0.2.9 method=GET"},
		{"pipe", "GET /auth", "method=GET"},
		{stranger, "GET /auth\nX-Original-URI: /a?b=c\nX-Original-Method: PUT", "ip=192.0.2.9 endpoint=/a method=PUT"},
		{stranger, "GET /auth\nX-Forwarded-Uri: /a\nX-Forwarded-Method: PUT", "ip=192.0.2.9 endpoint=/a method=PUT"},
		{stranger, "PATCH /auth\nX-User: alice\nX-Api-Key: k 1\nX-Other: x", "ip=192.0.2.9 method=PATCH user=alice key=k 1"},
		{stranger, "GET /auth\nX-User:", "ip=192.0.2.9 method=GET"},
		{stranger, "GET /auth\nX-User: \xff", "ip=192.0.2.9 method=GET user=\uFFFD"},
		{stranger, "GET /auth\nX-Original-URI: /a\nX-Forwarded-Uri: /a", "ip=192.0.2.9 endpoint=/a method=GET"},
		{stranger, "GET /auth\nX-Original-URI: /" + long, "ip=192.0.2.9 endpoint=/" + long + " method=GET"},

		{stranger, "GET /auth\nX-Original-URI: /a\nX-Forwarded-Uri: /b", `X-Original-Uri: "/a" is not what X-Forwarded-Uri says: "/b"`},
		{stranger, "GET /auth\nX-Original-Method: GET\nX-Forwarded-Method: PUT", `X-Original-Method: "GET" is not what X-Forwarded-Method says: "PUT"`},
		{stranger, "GET /auth\nX-Original-URI: /a\nX-Original-URI: /a", `X-Original-Uri: stands there 2 times`},
		{stranger, "GET /auth\nX-Forwarded-Uri: /a\nX-Forwarded-Uri: /a", `X-Forwarded-Uri: stands there 2 times`},
		{stranger, "GET /auth\nX-User: a\tb", `X-User: "a\tb" has a control character`},
		{stranger, "GET /auth\nX-Original-URI: /a%0ab", `X-Original-Uri: "/a\nb" has a control character`},
		{stranger, "GET /auth\nX-User: alice\nX-User: bob", `X-User: stands there 2 times`},
		{stranger, "GET /auth\nX-User: " + long, `X-User: 257 bytes are more than 256`},
		{stranger, "GET /auth\nX-Original-Method: " + long, `X-Original-Method: 257 bytes are more than 256`},
		{stranger, "GET /auth\nX-Original-URI: /" + strings.Repeat("x", 4096), `X-Original-Uri: 4097 bytes are more than 4096`},
		{stranger, "GET /auth\nX-Forwarded-Uri: %zz", `X-Forwarded-Uri: "%zz" is not a path or a URI`},
	} {
		attributes, err := c.attributes(authRequest(tc.from, tc.request), nil)
		var got []string
		for _, a := range attributes {
			got = append(got, a.Key+"="+a.Value)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = problemOf(err).Detail
		}
		if text != tc.want {
			t.Errorf("%.80q:\n got %s\nwant %s", tc.request, text, tc.want)
		}
	}
}

// Servers take all of these for one path, and so must the rules.
func TestPathOf(t *testing.T) {
	for uri, want := range map[string]string{
		"/a/b": "/a/b", "/a/b?c=d": "/a/b", "/a/b#c": "/a/b", "/a//b": "/a/b", "//a/b": "/a/b", "/a/./b": "/a/b", "/x/../a/b": "/a/b",
		"/%61/b": "/a/b", "/a%2Fb": "/a/b", "/a/%2e%2e/a/b": "/a/b", "http://host/a/b": "/a/b", "/../../a/b": "/a/b",
		"/a/b/": "/a/b/", "/": "/", "//": "/", "/..": "/", "http://host": "/", "/?": "/", "": "", "*": "/*",
		"/caf%C3%A9": "/café", "/caf%E9": "/caf\uFFFD", "/a b": "/a b", "/a;b": "/a;b",
		"/a/.": "/a/", "/a/%2e": "/a/", "/a/b/..": "/a/", "/a/b/../": "/a/", "/a/...": "/a/...", "/a.": "/a.", "/.": "/",
	} {
		if got, err := pathOf(uri); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", uri, got, err, want)
		}
	}
	for _, uri := range []string{"a", "?a", "#a", "/%", "/%zz", "http:a", "/\x01", "/v1/a%0a", "/a%00", "/a%7F", "/a%C2%85", "\\a", " /a", strings.Repeat("a", 4096)} {
		if got, err := pathOf(uri); err == nil || len(err.Error()) > 300 {
			t.Errorf("%q: %q, %v", uri, got, err)
		}
	}
}

// The guide's table says what is equal, and conditions that hold for all that servers may take
// for the same.
func TestPathsOfTheGuide(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/auth.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "### Spellings of a path\n")
	section, _, _ = strings.Cut(section, "\n## ")
	row := regexp.MustCompile("(?m)^\\| .* \\| `(.+)` \\| `(.+)` \\| (?:`(.+)`)? *\\|$")
	rows := row.FindAllStringSubmatch(section, -1)
	if len(rows) < 8 {
		t.Fatalf("%d rows", len(rows))
	}
	for _, r := range rows {
		if got, err := pathOf(r[1]); err != nil || got != r[2] {
			t.Errorf("%s: %q, %v, and the guide says %q", r[1], got, err, r[2])
		}
		if r[3] == "" {
			continue
		}
		f := newFixture(t, "domain: default\nrules: [{id: admin, when: {endpoint: '"+r[3]+"'}, limits: [{limit: 1, window: 1h}]}]")
		h := f.handler(t)
		for i, asked := range []string{"/admin", r[1]} {
			req := httptest.NewRequest(http.MethodGet, "/auth", nil)
			req.Header.Set("X-Original-URI", asked)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			if want := []int{http.StatusOK, http.StatusTooManyRequests}[i]; w.Code != want {
				t.Errorf("%s, asked for %s: %d, want %d", r[3], asked, w.Code, want)
			}
		}
	}
}

func TestClientIP(t *testing.T) {
	for _, tc := range []struct{ header, from, lines, want string }{
		{"X-Forwarded-For", stranger, "1.1.1.1", "192.0.2.9"}, // not of a trusted proxy
		{"X-Forwarded-For", proxy, "", "10.0.0.1"},
		{"X-Forwarded-For", proxy, "1.1.1.1", "1.1.1.1"},
		{"X-Forwarded-For", proxy, "1.1.1.1, 2.2.2.2", "2.2.2.2"}, // the client has said 1.1.1.1
		{"X-Forwarded-For", proxy, "1.1.1.1, 2.2.2.2, 10.0.0.2, 10.9.9.9", "2.2.2.2"},
		{"X-Forwarded-For", proxy, "10.0.0.3, 10.0.0.2", "10.0.0.3"}, // all are ours
		{"X-Forwarded-For", proxy, "1.1.1.1|2.2.2.2,10.0.0.2", "2.2.2.2"},
		{"X-Forwarded-For", proxy, "2.2.2.2|10.0.0.2", "2.2.2.2"},
		{"X-Forwarded-For", proxy, "1.1.1.1, unknown", "10.0.0.1"},
		{"X-Forwarded-For", proxy, "1.1.1.1, unknown, 10.0.0.2", "10.0.0.2"},
		{"X-Forwarded-For", proxy, "1.1.1.1,", "10.0.0.1"},
		{"X-Forwarded-For", proxy, ",,,", "10.0.0.1"},
		{"X-Forwarded-For", proxy, "1.1.1.1:99", "1.1.1.1"},
		{"X-Forwarded-For", proxy, "1.1.1.1:999999", "10.0.0.1"},
		{"X-Forwarded-For", proxy, "::ffff:1.1.1.1", "1.1.1.1"},
		{"X-Forwarded-For", proxy, "1.1.1.1, ::ffff:10.0.0.2", "1.1.1.1"},
		{"X-Forwarded-For", proxy, "2001:DB8:0::1", "2001:db8::1"},
		{"X-Forwarded-For", proxy, "[2001:db8::1]:443", "2001:db8::1"},
		{"X-Forwarded-For", proxy, "fe80::1%eth0", "fe80::1"},
		{"X-Forwarded-For", proxy, "[fe80::1%eth0]:443", "fe80::1"},
		{"X-Forwarded-For", proxy, "1.1.1.1, fd00::1%eth0", "1.1.1.1"}, // trusted with any zone
		{"X-Forwarded-For", proxy, "1.1.1.1%eth0", "10.0.0.1"},
		{"X-Forwarded-For", proxy, `"1.1.1.1"`, "10.0.0.1"},
		{"X-Forwarded-For", proxy, "1.1.1.1 2.2.2.2", "10.0.0.1"},
		{"X-Forwarded-For", proxy, "\t2.2.2.2 ,\t10.0.0.2\t", "2.2.2.2"},
		{"X-Forwarded-For", "[fd00::9%eth0]:80", "2.2.2.2", "2.2.2.2"},
		{"X-Forwarded-For", "pipe", "2.2.2.2", ""},

		{"X-Real-Ip", proxy, "2.2.2.2", "2.2.2.2"},
		{"X-Real-Ip", proxy, "nonsense", "10.0.0.1"},
		{"X-Real-Ip", stranger, "2.2.2.2", "192.0.2.9"},

		{"Forwarded", proxy, "for=2.2.2.2", "2.2.2.2"},
		{"Forwarded", proxy, "for=1.1.1.1, for=2.2.2.2, for=10.0.0.2", "2.2.2.2"},
		{"Forwarded", proxy, `for=1.1.1.1, FOR="[2001:db8::1]:4711";by=10.0.0.1; proto=https ;host="a, b;c=\"d\""`, "2001:db8::1"},
		{"Forwarded", proxy, `proto=https;for="2.2.2.2:80"`, "2.2.2.2"},
		{"Forwarded", proxy, `for=1.1.1.1, by=10.0.0.1`, "10.0.0.1"},
		{"Forwarded", proxy, `for=1.1.1.1, for=_hidden`, "10.0.0.1"},
		{"Forwarded", proxy, `for=unknown`, "10.0.0.1"},
		{"Forwarded", proxy, `for=1.1.1.1;for=2.2.2.2`, "10.0.0.1"},
		{"Forwarded", proxy, `for="1.1.1.1, for=2.2.2.2`, "10.0.0.1"},
		{"Forwarded", proxy, `for="1.1.1.1, for="2.2.2.2"`, "10.0.0.1"},
		{"Forwarded", proxy, `for="1.1.1.1\, for="2.2.2.2"`, "10.0.0.1"},
		{"Forwarded", proxy, `for=1.1.1.1" , for="2.2.2.2"`, "10.0.0.1"},
		{"Forwarded", proxy, `for="x|for=2.2.2.2`, "2.2.2.2"}, // the proxy's own line
		{"Forwarded", proxy, "for", "10.0.0.1"},
		{"Forwarded", proxy, "", "10.0.0.1"},
		{"Forwarded", proxy, "for=1.1.1.1;, for=2.2.2.2", "10.0.0.1"}, // not 1.1.1.1, which the client says
		{"Forwarded", proxy, "for=1.1.1.1;x y=z, for=2.2.2.2", "10.0.0.1"},
		{"", proxy, "for=2.2.2.2", "10.0.0.1"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/auth", nil)
		r.RemoteAddr = tc.from
		for _, other := range ClientIPHeaders { // other headers of clients
			r.Header[other] = []string{"9.9.9.9"}
		}
		r.Header[tc.header] = strings.Split(tc.lines, "|")
		if tc.lines == "" {
			delete(r.Header, tc.header)
		}
		c := trustingAuth(t, tc.header)
		if got := c.clientIP(r); got != tc.want {
			t.Errorf("%s of %s: %s: got %s, want %s", tc.header, tc.from, tc.lines, got, tc.want)
		}
	}
}

// FuzzClientIP: for any headers of clients, the address is the caller's or what a trusted proxy has said
// last; and what a client says before what a proxy appends changes nothing.
func FuzzClientIP(f *testing.F) {
	for _, line := range []string{
		"", "1.1.1.1", "::1%eth0", "[::1]:80, 2.2.2.2:", `for="[::1]";by=x`, `for="\`, `"`, ",;=", `a=";for=1.1.1.1;b="`, "for=1.1.1.1,,", `for="[::]";`, "10.0.0.2, fd00::1",
	} {
		f.Add(line, line)
	}
	f.Fuzz(func(t *testing.T, line, other string) {
		for _, header := range ClientIPHeaders {
			c := trustingAuth(t, header)
			r := httptest.NewRequest(http.MethodGet, "/auth", nil)
			r.RemoteAddr = proxy
			r.Header[header] = []string{other, line}
			got := c.clientIP(r)
			if addr, err := netip.ParseAddr(got); err != nil || addr.Zone() != "" || addr.Is4In6() {
				t.Errorf("%s: %q: got %q", header, line, got)
			}
			appended := map[string]string{"X-Forwarded-For": line + ", 7.7.7.7", "Forwarded": line + `, for="[2001:db8::7]:7"`, "X-Real-Ip": "7.7.7.7"}[header]
			r.Header[header] = []string{other, appended}
			if got := c.clientIP(r); got != "7.7.7.7" && got != "2001:db8::7" && (header != "Forwarded" || got != "10.0.0.1") {
				t.Errorf("%s: %q: a client has chosen %q", header, appended, got)
			}
		}
	})
}

// FuzzAuth: for any headers of a proxy, the answer is a decision or says which field is wrong, and rules
// see only what is within their bounds.
func FuzzAuth(f *testing.F) {
	f.Add("/a", "GET", "/a", "GET", "alice", "1.1.1.1", "default")
	f.Add("//a/%2e%2e?b#c", "\x00", "http://h", "", "\xff", "[::1%z]:1, x", "\xff/..")
	f.Add(strings.Repeat("/", 5000), "", "", strings.Repeat("G", 300), strings.Repeat("u", 257), ",", "")
	fixture := newFixture(f, inputRules)
	fixture.auth = trustingAuth(f, "X-Forwarded-For")
	h := authHandler{fixture.Limiter, new(atomic.Int64)}
	f.Fuzz(func(t *testing.T, uri, method, uri2, method2, user, forwarded, domain string) {
		r := httptest.NewRequest(http.MethodGet, "/auth", nil)
		r.RemoteAddr = proxy
		r.SetPathValue("domain", domain)
		r.Header = http.Header{
			"X-Original-Uri": {uri}, "X-Forwarded-Uri": {uri2}, "X-Original-Method": {method}, "X-Forwarded-Method": {method2},
			"X-User": {user}, "X-Forwarded-For": {forwarded},
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK, http.StatusTooManyRequests:
		case http.StatusBadRequest:
			var p headers.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || !strings.Contains(p.Detail, ": ") || len(p.Detail) > 1500 {
				t.Errorf("%s: %v", w.Body, err)
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
		attributes, err := fixture.auth.attributes(r, nil)
		for _, a := range attributes {
			if err == nil && (a.Value == "" || len(a.Value) > 3*maxPath || a.Key != endpointAttribute && len(a.Value) > 3*maxValue) {
				t.Errorf("%s has %d bytes", a.Key, len(a.Value))
			}
		}
	})
}

const authRules = `
domain: default
rules:
  - {id: posts, when: {endpoint: /posts, method: POST}, per: [user], limits: [{limit: 2, window: 10s}, {limit: 9, window: 1h}]}
  - {id: per-ip, when: {endpoint: "/ip/*"}, per: [ip], limits: [{limit: 1, window: 1m}]}
  - {id: cost, when: {endpoint: /cost}, cost: key, limits: [{limit: 1, window: 1m}]}
  - {id: careful, when: {endpoint: /careful}, on_failure: deny, limits: [{limit: 77, window: 1m}]}
  - {id: careless, when: {endpoint: /careless}, limits: [{limit: 77, window: 1m}]}
---
domain: shop
rules:
  - {id: all, limits: [{limit: 0, window: 1m}]}
`

func TestAuth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, authRules)
		f.auth = trustingAuth(t, "X-Forwarded-For")
		f.silent = func(take shard.Take) bool { return take.Limit.Limit == 77 }
		h := f.handler(t)
		const post = "GET /auth\nX-Original-URI: /posts?x\nX-Original-Method: POST\nX-User: "
		for i, tc := range []struct {
			request, want, body string
		}{
			{post + "alice", `200 "posts";q=2;w=10, "posts[1]";q=9;w=3600 "posts";r=1;t=11 2 1 11  `, ``},
			{post + "alice", `200 "posts";q=2;w=10, "posts[1]";q=9;w=3600 "posts";r=0;t=16 2 0 16  `, ``},
			{post + "alice", `429 "posts";q=2;w=10, "posts[1]";q=9;w=3600 "posts";r=0;t=11 2 0 16 11 11`,
				`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
					`"detail":"the limit posts, 2 in 10s, has no room now","violated-policies":["posts"]}`},
			{post + "bob", `200 "posts";q=2;w=10, "posts[1]";q=9;w=3600 "posts";r=1;t=11 2 1 11  `, ``},
			{"DELETE /auth\nX-Forwarded-Uri: /posts\nX-User: alice", `200      `, ``},
			{"GET /auth\nX-Forwarded-Uri: /ip/a\nX-Forwarded-For: 1.1.1.1", `200 "per-ip";q=1;w=60 "per-ip";r=0;t=61 1 0 61  `, ``},
			{"GET /auth\nX-Forwarded-Uri: /ip/b\nX-Forwarded-For: 9.9.9.9, 1.1.1.1:80", `429 "per-ip";q=1;w=60 "per-ip";r=0;t=61 1 0 61 61 61`, `per-ip`},
			{"GET /auth\nX-Forwarded-Uri: /ip/b\nX-Forwarded-For: 2.2.2.2", `200 "per-ip";q=1;w=60 "per-ip";r=0;t=61 1 0 61  `, ``},
			{"GET /auth?domain=shop&%zz", `200      `, ``}, // the client's
			{"GET /auth/shop?x", `429 "all";q=0;w=60 "all";r=0;t=0 0 0 0  `, `"violated-policies":["all"]`},
			{"GET /auth\nX-Forwarded-Uri: /careless", `200      `, ``},
			{"GET /auth\nX-Forwarded-Uri: /careful", `429      `, `"detail":"no node could decide in time whether the limit has room"`},
			{"GET /auth\nX-Forwarded-Uri: /cost\nX-Api-Key: many", `400      `, `attributes: `},
			{"GET /auth/" + strings.Repeat("d", 65), `400      `, `"detail":"domain: 65 bytes are more than 64"`},
			{"GET /auth\nX-User: a\nX-User: b", `400      `, `{"type":"about:blank","title":"Bad Request","status":400,"detail":"X-User: stands there 2 times"}`},
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, authRequest(proxy, tc.request))
			got := []string{strconv.Itoa(w.Code)}
			for _, name := range []string{"RateLimit-Policy", "RateLimit", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "X-Ratelimit-Retry-After"} {
				got = append(got, strings.Join(w.Header()[name], "|"))
			}
			if text := strings.Join(got, " "); strings.TrimRight(text, " ") != strings.TrimRight(tc.want, " ") {
				t.Errorf("%d: %q\n got %s\nwant %s", i, tc.request, text, tc.want)
			}
			if body := w.Body.String(); !strings.Contains(body, tc.body) || (tc.body == "") != (body == "") {
				t.Errorf("%d: %s\nwant %s", i, body, tc.body)
			}
			if isProblem := w.Header().Get("Content-Type") == headers.ProblemType; isProblem != (tc.body != "") {
				t.Errorf("%d: %v", i, w.Header())
			}
		}
		if n := apitest.Checks(t, f.registry, "denied", "fail_closed"); n != 1 {
			t.Errorf("%v denied undecided, want 1", n)
		}
	})
}

const turnRules = `
domain: default
rules:
  - {id: queue, when: {endpoint: /queue}, limits: [{limit: 10, window: 1s, burst: 10, algorithm: leaky_bucket}]}
  - {id: ahead, when: {endpoint: /ahead}, max_delay: 10s, limits: [{limit: 10, window: 1s, burst: 1, algorithm: token_bucket}]}
  - {id: seen, when: {endpoint: [/queue, /ahead]}, enforce: 0, limits: [{limit: 5, window: 1s, burst: 100, algorithm: leaky_bucket}]}
`

// An allowed request has waited for its turn, and one that would wait for too long is denied and has none.
func TestAuthTurns(t *testing.T) {
	for _, tc := range []struct {
		path    string
		longest time.Duration
		want    string // of five that come at once: when each is answered, in milliseconds, and how
	}{
		{"/queue", 0, "0 200, 0 429, 0 429, 0 429, 0 429"},
		{"/ahead", 0, "0 200, 0 429, 0 429, 0 429, 0 429"},
		{"/queue", 250 * time.Millisecond, "0 200, 0 429, 0 429, 100 200, 200 200"},
		{"/ahead", 250 * time.Millisecond, "0 200, 0 429, 0 429, 100 200, 200 200"},
		{"/queue", 5 * time.Second, "0 200, 100 200, 200 200, 300 200, 400 200"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, turnRules)
			f.auth = trustingAuth(t, "X-Forwarded-For")
			f.auth.MaxDelay = tc.longest
			h, begin := f.handler(t), time.Now()
			var wg sync.WaitGroup
			var mu sync.Mutex
			var got []string
			for range 5 {
				wg.Go(func() {
					w := httptest.NewRecorder()
					h.ServeHTTP(w, authRequest(proxy, "GET /auth\nX-Original-URI: "+tc.path))
					mu.Lock()
					defer mu.Unlock()
					got = append(got, fmt.Sprint(time.Since(begin).Round(time.Millisecond).Milliseconds(), " ", w.Code))
					if wait := w.Header().Get("Retry-After"); (w.Code == http.StatusTooManyRequests) != (wait == "1") {
						t.Errorf("%d: Retry-After is %q", w.Code, wait)
					}
				})
			}
			wg.Wait()
			slices.Sort(got)
			if text := strings.Join(got, ", "); text != tc.want {
				t.Errorf("%s, %v: %s\nwant %s", tc.path, tc.longest, text, tc.want)
			}
		})
	}
}

// A proxy that goes away does not wait, and no more wait than there is room for.
func TestAuthTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, "domain: default\nrules: [{id: slow, limits: [{limit: 1, window: 1s, burst: 1000000, algorithm: leaky_bucket}]}]\n")
		f.auth = trustingAuth(t, "X-Forwarded-For")
		f.auth.MaxDelay = time.Hour
		h, begin := f.handler(t), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		answers := make([]*httptest.ResponseRecorder, 2*maxAuthWaiting)
		var wg sync.WaitGroup
		for i := range answers {
			answers[i] = httptest.NewRecorder()
			wg.Go(func() { h.ServeHTTP(answers[i], authRequest(proxy, "GET /auth").WithContext(ctx)) })
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if took := time.Since(begin); took != 0 {
			t.Errorf("allowed requests have waited for %v", took)
		}
		denials := 0
		for _, w := range answers {
			if w.Code == http.StatusTooManyRequests {
				denials++
			}
		}
		if waited := len(answers) - denials; waited < maxAuthWaiting || waited > maxAuthWaiting+1 { // the first does not wait
			t.Errorf("%d were let in, want %d or one more", waited, maxAuthWaiting)
		}
		ctx, cancel = context.WithCancel(t.Context())
		another := httptest.NewRecorder()
		wg.Go(func() { h.ServeHTTP(another, authRequest(proxy, "GET /auth").WithContext(ctx)) })
		synctest.Wait()
		cancel()
		wg.Wait()
		if another.Code == http.StatusTooManyRequests {
			t.Error("when all have gone there is no room for another one")
		}
	})
}

func TestAuthOverloaded(t *testing.T) {
	f := newFixture(t, overloadRules)
	f.checks.Decider = overloadedThere{Decider: f}
	w := httptest.NewRecorder()
	f.handler(t).ServeHTTP(w, authRequest(proxy, "GET /auth\nX-Forwarded-Uri: /there"))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" ||
		!strings.Contains(w.Body.String(), `#temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503,"detail":"overloaded: `) {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

func TestParseAuthConfig(t *testing.T) {
	many := strings.Split(strings.TrimSuffix(strings.Repeat("a=b,", 14), ","), ",")
	long := strings.Repeat("a", 65) + "=b"
	for _, tc := range []struct {
		parse func([]string) error
		texts []string
		want  string
	}{
		{attributesOnly, []string{"user=X-User", "key=x-api-key"}, ""},
		{attributesOnly, nil, ""},
		{attributesOnly, []string{"user"}, `"user" is not an attribute and a header field, such as user=X-User`},
		{attributesOnly, []string{"user="}, `"user=" is not an attribute and a header field, such as user=X-User`},
		{attributesOnly, []string{"=X-User"}, `"=X-User" is not an attribute and a header field, such as user=X-User`},
		{attributesOnly, []string{"user=X User"}, `"user=X User" is not an attribute and a header field, such as user=X-User`},
		{attributesOnly, []string{"ip=X-Real-Ip"}, `"ip=X-Real-Ip": the attribute ip is what the proxy says of the request`},
		{attributesOnly, []string{"endpoint=X"}, `"endpoint=X": the attribute endpoint is what the proxy says of the request`},
		{attributesOnly, []string{"method=X"}, `"method=X": the attribute method is what the proxy says of the request`},
		{attributesOnly, []string{"a=X", "a=Y"}, `"a=Y": the attribute a stands there twice`},
		{attributesOnly, many, `14 attributes are more than 13`},
		{attributesOnly, []string{long}, `"` + long + `": the attribute has 65 bytes, more than 64`},
		{proxiesOnly, []string{"10.0.0.0/8", "::1", "127.0.0.1", "::ffff:1.2.3.4"}, ""},
		{proxiesOnly, []string{"none"}, ""},
		{proxiesOnly, []string{"10.0.0.0/8", "none"}, `"none" is not an address nor a block of addresses, such as 10.0.0.0/8 or 2001:db8::/32`},
		{proxiesOnly, []string{"10.0.0.1/8"}, `"10.0.0.1/8" has an address within the block; write 10.0.0.0/8`},
		{proxiesOnly, []string{"fe80::1%eth0"}, `"fe80::1%eth0" is not an address nor a block of addresses, such as 10.0.0.0/8 or 2001:db8::/32`},
		{proxiesOnly, []string{"::ffff:10.0.0.0/104"}, `"::ffff:10.0.0.0/104" is not an address nor a block of addresses, such as 10.0.0.0/8 or 2001:db8::/32`},
		{clientIPOnly, []string{"x-forwarded-for"}, ""},
		{clientIPOnly, []string{"X-Real-IP"}, ""},
		{clientIPOnly, []string{"Via"}, `"Via" is not one of X-Forwarded-For, Forwarded, X-Real-Ip`},
	} {
		err := tc.parse(tc.texts)
		if (err == nil) != (tc.want == "") || err != nil && err.Error() != tc.want {
			t.Errorf("%q: got %v, want %s", tc.texts, err, tc.want)
		}
	}
	blocks, err := ParseTrustedProxies([]string{"::ffff:1.2.3.4"})
	if err != nil || !blocks[0].Contains(netip.MustParseAddr("1.2.3.4")) {
		t.Errorf("%v, %v", blocks, err)
	}
}

func attributesOnly(texts []string) error { _, err := ParseAuthAttributes(texts); return err }
func proxiesOnly(texts []string) error    { _, err := ParseTrustedProxies(texts); return err }
func clientIPOnly(texts []string) error   { _, err := ParseClientIP(texts[0]); return err }

func BenchmarkAuth(b *testing.B) {
	f := newFixture(b, authRules)
	f.auth = trustingAuth(b, "X-Forwarded-For")
	h := f.handler(b)
	r := authRequest(proxy, "GET /auth\nX-Original-URI: /posts?x\nX-Original-Method: POST\nX-User: alice\nX-Forwarded-For: 1.1.1.1, 2.2.2.2")
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
}
