package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func (f *fixture) httpServer(t testing.TB) *http.Server {
	t.Helper()
	server, err := NewHTTPServer(f.Limiter, f.config, f.status, HTTPConfig{Gather: f.registry, Guard: f.guard, Permits: f.access})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

func (f *fixture) handler(t testing.TB) http.Handler { return f.httpServer(t).Handler }

// send returns the answer to one request.
func send(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

const (
	checkPath, batchPath = "/v1/check", "/v1/check:batch"
	goodBody             = `{"identifier":"alice","identifier_type":"user"}`
)

func TestHTTPRefuses(t *testing.T) {
	f := newFixture(t, inputRules)
	h := f.handler(t)
	for _, tc := range []struct {
		body, want string
	}{
		{``, `body: must not be empty`},
		{" \n ", `body: must not be empty`},
		{`{`, `body: the JSON ends too early, after 1 bytes`},
		{`{"identifier": "al`, `body: the JSON ends too early, after 18 bytes`},
		{goodBody[:len(goodBody)-1], `body: the JSON ends too early, after 46 bytes`},
		{`{"identifier"}`, `body: line 1, column 14: unexpected character }, missing ":" after field name`},
		{`[]`, `body: line 1, column 1: unexpected token [`},
		{`null`, `body: line 1, column 1: unexpected token null`},
		{`"x"`, `body: line 1, column 1: unexpected token "x"`},
		{`nonsense`, `body: line 1, column 1: invalid value nonsense`},
		{"\xff", "body: line 1, column 1: invalid value \uFFFD"},
		{"{\"identifier\": \"\xff\"}", `body: line 1, column 16: invalid UTF-8 in string`},
		{"{\"a\nb\": 1}", `body: line 1, column 2: invalid character '\n' in string`},
		{`{"identifier":"alice","identifer_type":"user"}`, `body: line 1, column 23: unknown field "identifer_type"`},
		{"\n\n  {\"identifier\":\"alice\",\n   \"nope\":1}", `body: line 4, column 4: unknown field "nope"`},
		{`{"identifier":7}`, `body: line 1, column 15: invalid value for string field identifier: 7`},
		{`{"tokens_requested":"many"}`, `body: line 1, column 21: invalid value for int64 field tokensRequested: "many"`},
		{`{"tokens_requested":1.5}`, `body: line 1, column 21: invalid value for int64 field tokensRequested: 1.5`},
		{`{"tokens_requested":9223372036854775808}`, `body: line 1, column 21: invalid value for int64 field tokensRequested: 9223372036854775808`},
		{`{"peek":"yes"}`, `body: line 1, column 9: invalid value for bool field peek: "yes"`},
		{`{"attributes":{"a":1}}`, `body: line 1, column 20: invalid value for string field value: 1`},
		{`{"attributes":{"a":"b","a":"c"}}`, `body: line 1, column 24: duplicate map key "a"`},
		{`{"identifier":"a","identifier":"b"}`, `body: line 1, column 19: duplicate field "identifier"`},
		{goodBody + `}`, `body: line 1, column 48: unexpected token }`},
		{goodBody + goodBody, `body: line 1, column 48: unexpected token {`},
		{`{"` + strings.Repeat("x", 1<<17) + `":1}`, `body: line 1, column 2: unknown field "` + strings.Repeat("x", 497) + `...`},
		{`{}`, `identifier: must not be empty`},
		{strings.Replace(goodBody, "alice", long257, 1), `identifier: 257 bytes are more than 256`},
		{`{"identifier":"a","identifier_type":"user","tokens_requested":-2147483649}`, `tokens_requested: -2147483649 is not between -2147483648 and 2147483648`},
	} {
		refusedHTTP(t, send(h, http.MethodPost, checkPath, tc.body), 400, 3, tc.want)
	}
	if f.shard.Len() != 0 {
		t.Error("a refused request was counted")
	}
}

// refusedHTTP reports an answer that is not the error that it should be.
func refusedHTTP(t *testing.T, w *httptest.ResponseRecorder, status, code int, want string) {
	t.Helper()
	var got struct {
		Code    int
		Message string
		Details []any
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Errorf("%d %s: %v", w.Code, w.Body, err)
	}
	if w.Code != status || got.Code != code || got.Message != want || len(got.Details) > 0 || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("\ngot  %d %s\nwant %d %d %s", w.Code, w.Body, status, code, want)
	}
}

func TestHTTPRefusesBatches(t *testing.T) {
	f := newFixture(t, inputRules)
	h := f.handler(t)
	items := func(n int) string {
		return `{"requests":[` + strings.TrimSuffix(strings.Repeat(goodBody+",", n), ",") + `]}`
	}
	for body, want := range map[string]string{
		`{}`:        `requests: must not be empty`,
		items(1001): `requests: 1001 items are more than 1000`,
		strings.Replace(items(2), goodBody+"]", `{"identifier":"b"}]`, 1): `requests[1].identifier_type: must not be empty`,
		strings.Replace(items(1), "alice", long257, 1):                    `requests[0].identifier: 257 bytes are more than 256`,
	} {
		refusedHTTP(t, send(h, http.MethodPost, batchPath, body), 400, 3, want)
	}
	if f.shard.Len() != 0 {
		t.Error("a refused batch was counted")
	}
	if w := send(h, http.MethodPost, batchPath, items(1000)); w.Code != http.StatusOK {
		t.Errorf("1000 items: %d %s", w.Code, w.Body)
	}
}

func TestHTTPBodySize(t *testing.T) {
	h := newFixture(t, inputRules).handler(t)
	pad := func(n int) string { return goodBody + strings.Repeat(" ", n-len(goodBody)) }
	if w := send(h, http.MethodPost, checkPath, pad(MaxMessage)); w.Code != http.StatusOK {
		t.Errorf("%d bytes: %d %s", MaxMessage, w.Code, w.Body)
	}
	for _, path := range []string{checkPath, batchPath} {
		refusedHTTP(t, send(h, http.MethodPost, path, pad(MaxMessage+1)), 413, 3, "body: more than 262144 bytes")
	}
	// An error has room for what it is about, wherever the limit cuts.
	refusedHTTP(t, send(h, http.MethodPost, checkPath, "{"+strings.Repeat(`"x`, MaxMessage)), 413, 3, "body: more than 262144 bytes")
}

func TestHTTPRoutes(t *testing.T) {
	h := newFixture(t, inputRules).handler(t)
	for _, tc := range []struct {
		method, path, allow, want string
	}{
		{"GET", checkPath, "POST", `method: GET is not POST`},
		{"PUT", batchPath, "POST", `method: PUT is not POST`},
		{"POST", "/v1/nodes", "GET, HEAD", `method: POST is not GET, HEAD`},
		{"DELETE", "/v1/ring", "GET, HEAD", `method: DELETE is not GET, HEAD`},
		{"GET", "/v1/nodes/a:drain", "POST, DELETE", `method: GET is not POST, DELETE`},
		{"GET", "/v1/nodes/a", "DELETE", `method: GET is not DELETE`},
		{"GET", "/v1/descriptors:explain", "POST", `method: GET is not POST`},
		{"GET", "/v1/descriptors:reset", "POST", `method: GET is not POST`},
		{"GET", "/v1/view:import", "POST", `method: GET is not POST`},
	} {
		w := send(h, tc.method, tc.path, goodBody)
		refusedHTTP(t, w, 405, 12, tc.want)
		if got := w.Header().Get("Allow"); got != tc.allow {
			t.Errorf("%s %s: Allow: %s, want %s", tc.method, tc.path, got, tc.allow)
		}
	}
	for _, path := range []string{"/v1/", "/v1/chek", "/v1/check:bath", "/v1/check/alice", "/v1/:batch"} {
		refusedHTTP(t, send(h, http.MethodPost, path, goodBody), 404, 5, "Not Found")
	}
	for path, want := range map[string]string{"/": "404 404 page not found\n", "/v2/check": "404 404 page not found\n", "/metrics": "405 Method Not Allowed\n", "/healthz": "405 Method Not Allowed\n", "/readyz": "405 Method Not Allowed\n"} {
		w := send(h, http.MethodPost, path, goodBody)
		if got := fmt.Sprint(w.Code, " ", w.Body); got != want {
			t.Errorf("POST %s: %q, want %q", path, got, want)
		}
	}
	// A form is no way around the method, and a header neither.
	r := httptest.NewRequest(http.MethodPost, "/v1/nodes", http.NoBody)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-HTTP-Method-Override", http.MethodGet)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	refusedHTTP(t, w, 405, 12, `method: POST is not GET, HEAD`)
}

// JSON has every field that always means something, by its name in the proto, and the
// others if they do.
func TestHTTPJSON(t *testing.T) {
	f := newFixture(t, inputRules)
	f.status.Current = newView(t, 3, "a", "b")
	h := f.handler(t)
	for _, body := range []string{goodBody, `{"identifier":"alice","identifierType":"user"}`} { // both spellings
		w := send(h, http.MethodPost, checkPath, body)
		var fields map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &fields); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		for _, name := range strings.Fields("allowed limit remaining_tokens reset_time retry_after_seconds rule_id source window reset_after limits") {
			if _, ok := fields[name]; !ok {
				t.Errorf("%s: no %s", w.Body, name)
			}
		}
		if len(fields) != 10 || fields["source"] != "SOURCE_OWNER" || fields["window"] != "3600s" {
			t.Errorf("%s", w.Body)
		}
	}
	var ring weirv1.GetRingResponse
	w := send(h, http.MethodGet, "/v1/ring?tables=true", "")
	if err := protojson.Unmarshal(w.Body.Bytes(), &ring); err != nil || len(ring.GetOwners()) != 1021 || ring.GetView() != 3 {
		t.Errorf("ring: %d %v", w.Code, err)
	}
	var nodes weirv1.ListNodesResponse
	w = send(h, http.MethodGet, "/v1/nodes", "")
	if err := protojson.Unmarshal(w.Body.Bytes(), &nodes); err != nil || len(nodes.GetNodes()) != 2 {
		t.Errorf("nodes: %d %s: %v", w.Code, w.Body, err)
	}
	var health weirv1.GetHealthStatusResponse
	w = send(h, http.MethodGet, "/v1/health", "")
	if err := protojson.Unmarshal(w.Body.Bytes(), &health); err != nil || len(health.GetMembers()) != 2 {
		t.Errorf("health: %d %s: %v", w.Code, w.Body, err)
	}
}

// A misspelt parameter is refused, so that it does not look as if it were heeded.
func TestHTTPQueryIsStrict(t *testing.T) {
	f := newFixture(t, inputRules)
	f.status.Current = newView(t, 3, "a", "b")
	h := f.handler(t)
	if w := send(h, http.MethodGet, "/v1/ring?tables=true", ""); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	refusedHTTP(t, send(h, http.MethodGet, "/v1/ring?table=true", ""), 400, 3, `query: unknown parameter "table"`)
	withStore(t, f)
	h = f.handler(t)
	refusedHTTP(t, send(h, http.MethodGet, "/v1/rules:watch?domian=shop", ""), 400, 3, `query: unknown parameter "domian"`)
	refusedHTTP(t, send(h, http.MethodGet, "/v1/rules:watch?domain=a&domain=b", ""), 400, 3, `too many values for field "domain": a, b`)
}

// An escape of JSON that stands for no character is an error that names it and its place.
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
