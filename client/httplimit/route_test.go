package httplimit_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirlimit/weir/client/httplimit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// endpoints returns a middleware, and what it has asked for last.
func endpoints(t *testing.T, opts ...httplimit.Option) (limit func(http.Handler) http.Handler, last *string) {
	t.Helper()
	last = new(string)
	limit, err := httplimit.New(deciding(func(_ context.Context, r *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
		*last = r.GetEndpoint()
		return &weirv1.RateLimitResponse{Allowed: true}, nil
	}), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return limit, last
}

var nothing = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// What is asked for is the route where the router knows it, and otherwise the path.
func TestEndpointIsTheRoute(t *testing.T) {
	patterns := []string{"GET /posts/{id}", "/users/{name}/posts", "/{$}", "/files/", "/rest/{path...}", "example.com/here"}
	before, lastBefore := endpoints(t)
	behind, lastBehind := endpoints(t)
	mux, behindMux := http.NewServeMux(), http.NewServeMux()
	for _, p := range patterns {
		mux.Handle(p, nothing)
		behindMux.Handle(p, behind(nothing))
	}
	for _, tc := range []struct{ url, want, wantBehind string }{
		{"/posts/7", "/posts/{id}", "/posts/{id}"},
		{"/posts/" + strings.Repeat("a", 300), "/posts/{id}", "/posts/{id}"},
		{"/users/alice/posts", "/users/{name}/posts", "/users/{name}/posts"},
		{"/", "/", "/"},
		{"/files/a/b", "/files/a/b", "/files/a/b"},
		{"/rest/a/b", "/rest/a/b", "/rest/a/b"},
		{"/here", "/here", "/here"},
		{"/unknown/a", "/unknown/a", ""},
	} {
		*lastBefore, *lastBehind = "", ""
		before(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, tc.url, http.NoBody))
		behindMux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, tc.url, http.NoBody))
		if *lastBefore != tc.want || *lastBehind != tc.wantBehind {
			t.Errorf("%s: %q before and %q behind the router, want %q and %q", tc.url, *lastBefore, *lastBehind, tc.want, tc.wantBehind)
		}
	}
}

// A router of another kind names its routes, and Path is what does not look for any.
func TestRouteOption(t *testing.T) {
	hook := httplimit.Route(func(r *http.Request) string { return r.Header.Get("Route") })
	limit, last := endpoints(t, hook)
	long := strings.Repeat("r", 300)
	for route, want := range map[string]string{"/posts/{id}": "/posts/{id}", "": "/posts/7"} {
		r := httptest.NewRequest(http.MethodGet, "/posts/7", http.NoBody)
		r.Header.Set("Route", route)
		if limit(nothing).ServeHTTP(httptest.NewRecorder(), r); *last != want {
			t.Errorf("route %q: %q, want %q", route, *last, want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/posts/7", http.NoBody)
	r.Header.Set("Route", long)
	if limit(nothing).ServeHTTP(httptest.NewRecorder(), r); len(*last) != 256 {
		t.Errorf("a long route has %d bytes, want 256", len(*last))
	}
	mux := http.NewServeMux()
	mux.Handle("/posts/{id}", nothing)
	limit, last = endpoints(t, httplimit.Endpoint(httplimit.Path))
	limit(mux).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/posts/7", http.NoBody))
	if *last != "/posts/7" {
		t.Errorf("%q, want the path", *last)
	}
}

// A long path fits into what nodes take, differs from all others, and begins and ends as it
// did; short ones stay as they are.
func TestLongPath(t *testing.T) {
	of := func(path string) string {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.URL.Path = path
		return httplimit.Path(r)
	}
	if longest := "/" + strings.Repeat("a", 255); of(longest) != longest {
		t.Errorf("a path of 256 bytes became %q", of(longest))
	}
	seen := make(map[string]string)
	for _, middle := range []string{"a", "b", "ä", "€", "\U0001F600", "\xffa"} {
		for n := range 4 {
			path := "/v1/" + strings.Repeat("x", n) + strings.Repeat(middle, 300) + "/login"
			got := of(path)
			if len(got) > 256 || len(got) < 240 || !utf8.ValidString(got) || !strings.HasPrefix(got, "/v1/") || !strings.HasSuffix(got, "/login") {
				t.Errorf("%.20q became %q of %d bytes", path, got, len(got))
			}
			if other, found := seen[got]; found {
				t.Errorf("%.20q and %.20q are one", path, other)
			}
			seen[got] = path
		}
	}
}

// The limit of a long path is enforced, and is that of no other.
func TestLongPathIsLimited(t *testing.T) {
	s := serve(t, embed(t, "{id: per-path, per: [endpoint], limits: [{limit: 1, window: 1d}]}"))
	for _, path := range []string{"/" + strings.Repeat("a", 400), "/" + strings.Repeat("a", 401)} {
		for _, want := range []int{http.StatusNoContent, http.StatusTooManyRequests} {
			if r := s.get(t.Context(), path, ""); r.Code != want {
				t.Errorf("%d bytes: %d, %s, want %d", len(path), r.Code, r.Body, want)
			}
		}
	}
}
