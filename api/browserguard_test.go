package api

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// page is a request as a browser makes it for a web page.
func page(method, path, body, host, origin, site string) *http.Request {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = host
	r.Header.Set("Content-Type", "text/plain")
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	if site != "" {
		r.Header.Set("Sec-Fetch-Site", site)
	}
	return r
}

// No web page of another origin changes anything, by any kind of request, and other callers are not
// refused.
func TestPagesOfOtherOrigins(t *testing.T) {
	f := newFixture(t, checkRules)
	f.guard = Guard{Loopback: true, Hosts: []string{"weir.example.com"}}
	f.status.IsReady = true
	h := f.handler(t)
	const (
		local = "127.0.0.1:8080"
		evil  = "https://evil.example"
	)
	for _, tc := range []struct {
		method, path, host, origin, site string
		refused                          bool
	}{
		// A page of others, in new and in old browsers.
		{"POST", "/v1/reset", local, evil, "cross-site", true},
		{"POST", "/v1/reset", local, evil, "", true},
		{"POST", "/v1/reset", local, "", "cross-site", true},
		{"POST", "/v1/reset", local, "null", "", true},
		{"POST", "/v1/reset", "localhost:8080", "http://localhost:3000", "same-site", true},
		{"POST", "/v1/rules:apply", local, evil, "cross-site", true},
		{"POST", "/v1/nodes/a:drain", local, evil, "cross-site", true},
		{"POST", "/v1/view:import", local, evil, "cross-site", true},
		{"POST", "/v1/check", local, evil, "cross-site", true},
		{"POST", "/json", local, evil, "cross-site", true},
		{"PUT", "/v1/rules/default/a", local, evil, "cross-site", true},
		{"DELETE", "/v1/rules/default/a", local, evil, "cross-site", true},
		// One whose name its owner has made an address of this machine.
		{"POST", "/v1/reset", "evil.example:8080", "http://evil.example:8080", "same-origin", true},
		{"GET", "/v1/rules", "evil.example:8080", "", "same-origin", true},
		{"GET", "/v1/rules", "evil.example", "", "", true},
		{"GET", "/metrics", "evil.example", "", "", true},
		{"GET", "/v1/rules", "localhost.evil.example", "", "", true},
		{"GET", "/v1/rules", "127.0.0.1.evil.example:8080", "", "", true},
		// Requests without another origin.
		{"GET", "/v1/rules", local, evil, "cross-site", false}, // which the page cannot read
		{"POST", "/v1/reset", local, "http://" + local, "same-origin", false},
		{"POST", "/v1/reset", "weir.example.com", "https://weir.example.com", "", false},
		{"POST", "/v1/reset", "WEIR.example.com.:8080", "", "", false},
		{"POST", "/v1/reset", local, "", "none", false},
		{"GET", "/metrics", "localhost:8080", "", "", false},
		{"GET", "/metrics", "node.localhost", "", "", false},
		{"GET", "/metrics", "[::1]:8080", "", "", false},
		{"GET", "/metrics", "[::1]", "", "", false},
		{"GET", "/metrics", "", "", "", false}, // HTTP/1.0
		// A proxy asks with the header fields of its clients, a health check under any name.
		{"POST", "/auth", "shop.example", evil, "cross-site", false},
		{"GET", "/auth/shop", "shop.example", "", "", false},
		{"GET", "/healthz", "shop.example", "", "", false},
		{"GET", "/readyz", "shop.example", "", "", false},
		{"GET", "/healthcheck", "shop.example", "", "", false},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, page(tc.method, tc.path, goodBody, tc.host, tc.origin, tc.site))
		if (w.Code == http.StatusForbidden) != tc.refused {
			t.Errorf("%s %s, host %q, origin %q, %q: %d %s", tc.method, tc.path, tc.host, tc.origin, tc.site, w.Code, w.Body)
		}
		if tc.refused && !strings.HasPrefix(w.Body.String(), `{"code":7,`) {
			t.Errorf("%s %s: %s", tc.method, tc.path, w.Body)
		}
	}
	// Beyond loopback, names are not known.
	f.guard = Guard{}
	h = f.handler(t)
	for host, want := range map[string]int{"weir-1:8080": http.StatusOK, "evil.example": http.StatusOK} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, page("GET", "/v1/health", "", host, "", ""))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", host, w.Code, want)
		}
	}
	// With names given, there are no others anywhere.
	f.guard = Guard{Hosts: []string{"weir-1"}}
	h = f.handler(t)
	for host, want := range map[string]int{"weir-1:8080": http.StatusOK, "localhost:8080": http.StatusOK, "10.0.0.7:8080": http.StatusOK, "evil.example": http.StatusForbidden} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, page("GET", "/v1/health", "", host, "", ""))
		if w.Code != want {
			t.Errorf("%s with names given: %d, want %d", host, w.Code, want)
		}
	}
	// Names of the server itself need not be given, and refuse no others.
	var refused []string
	for _, tc := range []struct {
		guard Guard
		host  string
		want  int
	}{
		{Guard{Hosts: []string{"weir.example.com"}, Own: []string{"weir-1"}}, "WEIR-1.:8080", http.StatusOK},
		{Guard{Hosts: []string{"weir.example.com"}, Own: []string{"weir-1"}}, "weir.example.com", http.StatusOK},
		{Guard{Hosts: []string{"weir.example.com"}, Own: []string{"weir-1"}}, "evil.example:8080", http.StatusForbidden},
		{Guard{Loopback: true, Own: []string{"weir-1"}}, "weir-1:8080", http.StatusOK},
		{Guard{Loopback: true, Own: []string{"weir-1"}}, strings.Repeat("e", maxHostName+1), http.StatusForbidden},
		{Guard{Own: []string{"weir-1"}}, "weir.shop.svc", http.StatusOK},
	} {
		f.guard = tc.guard
		f.guard.Refused = func(host string) { refused = append(refused, host) }
		w := httptest.NewRecorder()
		f.handler(t).ServeHTTP(w, page("GET", "/v1/health", "", tc.host, "", ""))
		if w.Code != tc.want {
			t.Errorf("%s with %+v: %d, want %d", tc.host, tc.guard, w.Code, tc.want)
		}
	}
	if want := []string{"evil.example:8080", strings.Repeat("e", maxHostName)}; !slices.Equal(refused, want) {
		t.Errorf("refused hosts %q, want %q", refused, want)
	}
	f.guard = Guard{}
	h = f.handler(t)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, page("POST", "/v1/reset", goodBody, "weir-1:8080", evil, "cross-site"))
	if w.Code != http.StatusForbidden {
		t.Errorf("another origin beyond loopback: %d", w.Code)
	}
}
