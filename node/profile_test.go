package node

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// asPage is a request as a browser makes it for a web page.
func asPage(t *testing.T, method, url, host, origin string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	r.Header.Set("Content-Type", "text/plain")
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	return r
}

// TestProfiles: a node that is told to serves its profiles, where its log says, and on its
// other ports there are none.
func TestProfiles(t *testing.T) {
	t.Parallel()
	logged, w := io.Pipe()
	defer func() { _ = w.Close() }()
	urls := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(logged); lines.Scan(); {
			var line struct{ URL string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.URL != "" {
				urls <- line.URL
			}
		}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	opts := Options{ID: "a", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", EtcdListen: "127.0.0.1:0", Pprof: "127.0.0.1:0", DataDir: t.TempDir()}
	ended, ready := make(chan error, 1), make(chan Info, 1)
	go func() {
		ended <- Run(ctx, opts, slog.New(slog.NewJSONHandler(w, nil)), func(i Info) { ready <- i })
	}()
	var info Info
	select {
	case info = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	url := <-urls
	for path, ask := range map[string]*http.Request{
		"another origin":         asPage(t, http.MethodPost, url+"symbol", "", "https://evil.example"),
		"a name of others":       asPage(t, http.MethodGet, url+"heap", "evil.example:6060", ""),
		"another origin of HTTP": asPage(t, http.MethodPost, "http://"+info.HTTP+"/v1/nodes/a:drain", "", "https://evil.example"),
		"a name of others, HTTP": asPage(t, http.MethodGet, "http://"+info.HTTP+"/v1/rules", "evil.example:8080", ""),
	} {
		resp, err := http.DefaultClient.Do(ask)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	for path, want := range map[string]int{
		url:                                     http.StatusOK,
		url + "heap":                            http.StatusOK,
		url + "profile?seconds=1":               http.StatusOK,
		"http://" + info.HTTP + "/debug/pprof/": http.StatusNotFound,
	} {
		resp, err := http.Get(path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, resp.Status, want)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if resp, err := http.Get(url); err == nil {
		_ = resp.Body.Close()
		t.Error("profiles are served after the end")
	}
}
