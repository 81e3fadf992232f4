package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
					t.Errorf("%s %s?%s=1 is refused: missing in queries, in api/unknownquery.go", method, path, p.Name)
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
