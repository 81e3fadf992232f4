package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/internal/headers"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/shard"
)

// connect serves the API over HTTP on one connection until the test ends.
func (f *fixture) connect(t *testing.T) net.Conn {
	t.Helper()
	listener, server := inmemory.NewListener(), f.httpServer(t)
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	conn, err := listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Close() // and with it the connection
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return conn
}

// ask sends one request and returns what comes back byte by byte: the status, the
// header lines that tell of limits, sorted, and the body.
func ask(t *testing.T, conn net.Conn, path, body string) (code string, lines []string, answer string) {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: node\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body); err != nil {
		t.Fatal(err)
	}
	var raw strings.Builder
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(raw.String(), "\r\n\r\n")
	for line := range strings.SplitSeq(head, "\r\n") {
		if lower := strings.ToLower(line); strings.Contains(lower, "ratelimit") || strings.HasPrefix(lower, "retry") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return resp.Status, lines, string(text)
}

const okStatus, deniedStatus = "200 OK", "429 Too Many Requests"

func TestHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		conn := f.connect(t)
		const posts, closed = `{"identifier":"a","identifier_type":"user","endpoint":"/posts"`, `{"identifier":"a","identifier_type":"user","endpoint":"/closed"}`
		for i, tc := range []struct {
			body, code string
			want       string
		}{
			{posts + `,"tokens_requested":4}`, okStatus,
				`RateLimit-Policy: "posts";q=10;w=10, RateLimit: "posts";r=6;t=18, X-RateLimit-Limit: 10, X-RateLimit-Remaining: 6, X-RateLimit-Reset: 18`},
			{posts + `,"tokens_requested":"7"}`, deniedStatus,
				`RateLimit-Policy: "posts";q=10;w=10, RateLimit: "posts";r=6;t=11, Retry-After: 11, X-RateLimit-Limit: 10, X-RateLimit-Remaining: 6, X-RateLimit-Reset: 18, X-Ratelimit-Retry-After: 11`},
			{posts + `,"tokens_requested":6,"peek":true}`, okStatus,
				`RateLimit-Policy: "posts";q=10;w=10, RateLimit: "posts";r=0;t=20, X-RateLimit-Limit: 10, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 20`},
			{posts + `,"tokens_requested":11}`, deniedStatus,
				`RateLimit-Policy: "posts";q=10;w=10, RateLimit: "posts";r=6;t=18, X-RateLimit-Limit: 10, X-RateLimit-Remaining: 6, X-RateLimit-Reset: 18`},
			{strings.Replace(posts, "posts", "fast", 1) + `}`, okStatus,
				`RateLimit-Policy: "fast";q=2;w=1, RateLimit: "fast";r=1;t=1, X-RateLimit-Limit: 2, X-RateLimit-Remaining: 1, X-RateLimit-Reset: 1`},
			{closed, deniedStatus,
				`RateLimit-Policy: "closed";q=0;w=1, RateLimit: "closed";r=0;t=0, X-RateLimit-Limit: 0, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 0`},
			{strings.Replace(posts, "posts", "none", 1) + `}`, okStatus, ``},
			{strings.Replace(posts, "posts", "both", 1) + `}`, okStatus,
				`RateLimit-Policy: "both";q=3;w=1, "both[1]";q=5;w=3600, RateLimit: "both";r=2;t=2, X-RateLimit-Limit: 3, X-RateLimit-Remaining: 2, X-RateLimit-Reset: 2`},
			{posts, "400 Bad Request", ``},
		} {
			code, lines, body := ask(t, conn, "/v1/check", tc.body)
			if got := strings.Join(lines, ", "); code != tc.code || got != tc.want {
				t.Errorf("request %d: %s %s\ngot  %s\nwant %s", i, code, body, got, tc.want)
			}
		}
	})
}

// A batch has as many decisions as items, and none of them is the response's.
func TestBatchHasNoHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFixture(t, checkRules).connect(t)
		code, lines, body := ask(t, conn, "/v1/check:batch", `{"requests":[{"identifier":"a","identifier_type":"user","endpoint":"/closed"}]}`)
		if code != okStatus || len(lines) > 0 || !strings.Contains(body, `"allowed":false`) {
			t.Errorf("%s %q %s", code, lines, body)
		}
	})
}

func TestFailOpenHasNoHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		f.silent = func(take shard.Take) bool { return take.Limit.Limit == 5 }
		conn := f.connect(t)
		const both = `{"identifier":"a","identifier_type":"user","endpoint":"/both","tokens_requested":3}`
		code, lines, body := ask(t, conn, "/v1/check", both)
		if code != okStatus || len(lines) > 0 || !strings.Contains(body, "SOURCE_FAIL_OPEN") {
			t.Errorf("partly undecided: %s %q %s", code, lines, body)
		}
		// A node that does answer may still deny.
		code, lines, _ = ask(t, conn, "/v1/check", both)
		if code != deniedStatus || !slices.Contains(lines, "Retry-After: 2") {
			t.Errorf("denied by one that answers: %s %q", code, lines)
		}
	})
}

// What a client with another parser reads is what the response says.
func TestHeadersAreStructuredFields(t *testing.T) {
	longest := strings.Repeat("r", 120) + "._-09aZ"
	f := newFixture(t, "domain: default\nrules:\n- {id: "+longest+", limits: [{limit: 2147483648, window: 366d}]}\n")
	resp := f.check(t, "user=a cost=2147483647")
	h := make(http.Header)
	if err := f.style.Set(h, headers.Of(resp)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]map[string]int64{
		"RateLimit-Policy": {"q": 1 << 31, "w": int64(366 * 24 * time.Hour / time.Second)},
		"RateLimit":        {"r": 1, "t": check.CeilSeconds(int64(resp.GetResetAfter().AsDuration()))},
	} {
		list, err := httpsfv.UnmarshalList(h[name])
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %q: %d items, %v", name, h[name], len(list), err)
		}
		item, ok := list[0].(httpsfv.Item)
		if !ok || item.Value != longest || len(item.Params.Names()) != len(want) {
			t.Fatalf("%s: %q: %+v", name, h[name], list[0])
		}
		for param, n := range want {
			if got, _ := item.Params.Get(param); got != n {
				t.Errorf("%s: %s is %v, want %d", name, param, got, n)
			}
		}
	}
}
