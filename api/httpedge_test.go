package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/rules"
)

// A query that nothing reads is an error on every path that the document describes, and one
// that is read is none.
func TestUnreadQueries(t *testing.T) {
	f := newFixture(t, checkRules)
	f.status.IsReady = true
	h := f.handler(t)
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	asked := 0
	ask := func(method, path, query string) int {
		asked++
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // no watch goes on
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path+"?"+query, strings.NewReader(goodBody)))
		if w.Code == http.StatusBadRequest && (strings.Contains(w.Body.String(), "query: ") || strings.Contains(w.Body.String(), "invalid URL escape")) {
			return http.StatusBadRequest
		}
		return http.StatusOK
	}
	for path, methods := range doc.Paths {
		path = strings.NewReplacer("{domain}", "d", "{id}", "i", "{node_id}", "n", "{rate_limit.domain}", "d", "{rate_limit.id}", "i").Replace(path)
		for method, text := range methods {
			var operation struct {
				Parameters []struct{ Name, In string }
			}
			if method == "parameters" { // of all methods, in the path
				continue
			}
			if err := json.Unmarshal(text, &operation); err != nil {
				t.Fatal(err)
			}
			method = strings.ToUpper(method)
			want := http.StatusBadRequest
			if strings.HasPrefix(path, "/auth") { // has the query of a proxy's client
				want = http.StatusOK
			}
			for _, query := range []string{"nothing=1", "revisoin=1&%zz"} {
				if got := ask(method, path, query); got != want {
					t.Errorf("%s %s?%s: %d, want %d", method, path, query, got, want)
				}
			}
			for _, p := range operation.Parameters {
				if p.In == "query" && ask(method, path, p.Name+"=1") != http.StatusOK {
					t.Errorf("%s %s?%s=1 is refused: missing in queries, in api/httpedge.go", method, path, p.Name)
				}
			}
		}
	}
	if asked < 40 {
		t.Errorf("only %d requests", asked)
	}
	for path, want := range map[string]int{
		"/metrics?name[]=weir_checks_total": http.StatusOK,
		"/metrics?nam[]=weir_checks_total":  http.StatusBadRequest,
		"/healthz?verbose":                  http.StatusBadRequest,
		"/healthz?":                         http.StatusOK,
		"/rlconfig?x":                       http.StatusBadRequest,
		"/v1/rules:watch?x=1":               http.StatusBadRequest,
	} {
		if w := send(h, http.MethodGet, path, ""); w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Where GET works HEAD does, with the same header fields and nothing behind them.
func TestHead(t *testing.T) {
	f := newFixture(t, checkRules)
	f.status.IsReady = true
	server := httptest.NewServer(f.handler(t))
	defer server.Close()
	for path, code := range map[string]int{
		"/v1/health": 200, "/v1/nodes": 200, "/v1/ring": 200, "/v1/rules": 200, "/v1/rules/default/none": 404, "/v1/rules:watch": 200,
		"/metrics": 200, "/openapi.json": 200, "/healthz": 200, "/readyz": 200, "/healthcheck": 200, "/rlconfig": 200,
		"/v1/check": 405, "/json": 405, "/none": 404, "/v1/rules?x=1": 400,
	} {
		resp, err := http.Head(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != code || len(body) > 0 || err != nil || code == 200 && path != "/healthcheck" && resp.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %s %v, %d bytes, %v, want %d", path, resp.Status, resp.Header, len(body), err, code)
		}
	}
}

func TestWrongEscapes(t *testing.T) {
	h := newFixture(t, checkRules).handler(t)
	for body, want := range map[string]string{
		`{"identifier":"a\xb"}`:                    `body: line 1, column 17: \x stands for no character`,
		`{"identifier":"a\u12"}`:                   `body: line 1, column 17: \u12 stands for no character`,
		`{"identifier":"a\uZZZZ"}`:                 `body: line 1, column 17: \uZZZZ stands for no character`,
		`{"identifier":"\u0041\ud800b"}`:           `body: line 1, column 22: \ud800 stands for no character`,
		`{"identifier":"a\ud800\u0041"}`:           `body: line 1, column 17: \ud800 stands for no character`,
		`{"identifier":"a\udc00"}`:                 `body: line 1, column 17: \udc00 stands for no character`,
		"{\n \"identifier\":\n  \"é\\\\\\\"\\q\"}": `body: line 3, column 9: \q stands for no character`,
		`{"iden\qtifier":"x"}`:                     `body: line 1, column 7: \q stands for no character`,
		`{"identifier":"a`:                         `body: the JSON ends too early, after 16 bytes`,
		`{"identifier":"a\`:                        `body: the JSON ends too early, after 17 bytes`,
		`{"identifier":"a","identifier_type":5}`:   `body: line 1, column 37: invalid value for string field identifierType: 5`,
	} {
		refusedHTTP(t, send(h, http.MethodPost, checkPath, body), 400, 3, want)
	}
	if w := send(h, http.MethodPost, checkPath, `{"identifier":"\"\\\/\b\ud83d\ude00","identifier_type":"user"}`); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// slowRules are rules that take a while to change.
type slowRules struct {
	apitest.FixedRules
	takes time.Duration
}

func (s slowRules) Change(ctx context.Context, _ bool, _ rules.Edit) (old, next *rules.State, err error) {
	select {
	case <-time.After(s.takes):
		return s.State(), s.State(), nil
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

// A change that takes longer than the server gives an answer has one all the same.
func TestSlowApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		for takes, want := range map[time.Duration]int{bodyTimeout + 5*time.Second: 200, time.Hour: 503} {
			f.config = NewConfigServer(slowRules{apitest.FixedRules{Set: f.status.Set}, takes})
			listener, server := inmemory.NewListener(), f.httpServer(t)
			served := make(chan error)
			go func() { served <- server.Serve(listener) }()
			client := &http.Client{Transport: &http.Transport{
				DisableKeepAlives: true,
				DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
			}}
			begin := time.Now()
			resp, err := client.Post("http://localhost/v1/rules:apply", "application/json", strings.NewReader(`{"rules":"domain: d\nrules: []\n"}`))
			if err != nil {
				t.Fatalf("%v: %v", takes, err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != want || len(body) == 0 || err != nil {
				t.Errorf("%v: %s %s, %v, want %d", takes, resp.Status, body, err, want)
			}
			if d := time.Since(begin); d != min(takes, applyTimeout) {
				t.Errorf("%v: answered after %v", takes, d)
			}
			_ = server.Close()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}
	})
}
