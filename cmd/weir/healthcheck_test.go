package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestHealthcheck: exit code 0 if /readyz says yes, and 1, never 2, in all other cases.
func TestHealthcheck(t *testing.T) {
	status := http.StatusOK
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	ask := func(want int, said string, env []string, args ...string) {
		t.Helper()
		got := weir(t, env, append([]string{"healthcheck"}, args...)...)
		if got.code != want || got.stdout != "" || !strings.Contains(got.stderr, said) || said == "" && got.stderr != "" {
			t.Errorf("%v weir healthcheck %v: %+v, want %d, %q", env, args, got, want, said)
		}
	}
	ask(0, "", nil, "--http", address)
	ask(0, "", []string{"WEIR_HTTP=" + address})
	status = http.StatusServiceUnavailable
	ask(1, "the node at "+address+" is not ready: /readyz answers 503", nil, "--http", address)
	ask(1, "names no port to ask", nil, "--http", "127.0.0.1:0")
	ask(1, `"loud" is not one of`, []string{"WEIR_LOG_LEVEL=loud"})
	ask(1, "--timeout: 0s is not above 0", nil, "--timeout", "0s")
	server.Close()
	ask(1, "connection refused", nil, "--http", address)
}
