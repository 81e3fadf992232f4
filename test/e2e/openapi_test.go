package e2e

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/weirlimit/weir/test/process"
)

// TestOpenAPI asks a node for everything that its own document says there is, and holds
// requests and answers against it.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	const rule = `{"id":"posts","identifier_type":"user","limit":1,"window_seconds":3600`
	const check = `{"identifier_type":"user","identifier":"alice"}`
	exchanges := []struct {
		method, target, body string
		status               int
	}{
		{"POST", "/v1/rules", rule + `}`, 200},
		{"POST", "/v1/rules", rule + `}`, 409},
		{"GET", "/v1/rules", "", 200},
		{"GET", "/v1/rules/default/posts", "", 200},
		{"GET", "/v1/rules/default/none", "", 404},
		{"PUT", "/v1/rules/default/posts", rule + `,"enabled":true}`, 200},
		{"POST", "/v1/rules:apply", `{"files":[]}`, 400},
		{"POST", "/v1/check", check, 200},
		{"POST", "/v1/check", check, 429},
		{"POST", "/v1/check", `{"identifier_type":"user","identifier":""}`, 400},
		{"POST", "/v1/check:batch", `{"requests":[` + check + `]}`, 200},
		{"POST", "/v1/status", check, 200},
		{"POST", "/v1/explain", check, 200},
		{"POST", "/v1/reset", check, 200},
		{"POST", "/v1/rules:apply", `{"rules":"domain: edge\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1}}]\n"}`, 200},
		{"POST", "/v1/descriptors:explain", `{"domain":"edge","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`, 200},
		{"POST", "/v1/descriptors:explain", `{"descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`, 400},
		{"POST", "/v1/descriptors:reset", `{"domain":"edge","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`, 200},
		{"GET", "/v1/health", "", 200},
		{"GET", "/v1/nodes", "", 200},
		{"POST", "/v1/nodes/another:drain", `{}`, 400},
		{"DELETE", "/v1/nodes/none", "", 404},
		{"POST", "/v1/view:import", `{}`, 400}, // there is nothing to import into
		{"GET", "/v1/ring?tables=true", "", 200},
		{"GET", "/v1/options", "", 200},
		{"GET", "/v1/top?by=denied&window=1h&limit=5", "", 200},
		{"GET", "/v1/top?by=most", "", 400},
		{"GET", "/v1/rules:watch", "", 200},
		{"DELETE", "/v1/rules/default/posts", "", 200},
		{"GET", "/auth", "", 200},
		{"POST", "/auth", "", 200},
		{"GET", "/auth/" + strings.Repeat("d", 65), "", 400},
		{"POST", "/auth/shop", "", 200},
		{"POST", "/json", `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`, 200},
		{"POST", "/json", `{}`, 400},
		{"GET", "/healthcheck", "", 200},
		{"GET", "/rlconfig", "", 200},
		{"GET", "/healthz", "", 200},
		{"GET", "/readyz", "", 200},
		{"GET", "/metrics", "", 200},
		{"GET", "/openapi.json", "", 200},
	}
	node := process.Start(t)
	document := served(t, "http://"+node.HTTP)
	router, err := gorillamux.NewRouter(document)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(map[string]bool)
	for _, e := range exchanges {
		req, err := http.NewRequestWithContext(t.Context(), e.method, "http://"+node.HTTP+e.target, strings.NewReader(e.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		route, params, err := router.FindRoute(req)
		if err != nil {
			t.Errorf("%s %s: %v", e.method, e.target, err)
			continue
		}
		asked[route.Method+" "+route.Path] = true
		input := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route}
		if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil {
			t.Errorf("%s %s: %v", e.method, e.target, err)
		}
		req.Body = io.NopCloser(strings.NewReader(e.body)) // it has been read
		validate(t, input, e.status)
	}
	for path, item := range document.Paths.Map() {
		for method := range item.Operations() {
			if !asked[method+" "+path] {
				t.Errorf("%s %s is documented, but not tried", method, path)
			}
		}
	}
}

// served returns the document of a node, with the node itself as the server.
func served(t *testing.T, url string) *openapi3.T {
	t.Helper()
	resp, err := http.Get(url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	document, err := openapi3.NewLoader().LoadFromIoReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	document.Servers = openapi3.Servers{{URL: url}}
	return document
}

// validate sends the request and holds the answer against the document.
func validate(t *testing.T, input *openapi3filter.RequestValidationInput, status int) {
	t.Helper()
	req := input.Request
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	options := &openapi3filter.Options{IncludeResponseStatus: true}
	var body []byte
	if resp.Header.Get("Content-Type") == "application/x-ndjson" {
		options.ExcludeResponseBody = true // it does not end
	} else if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status {
		t.Errorf("%s %s: %s %s, want %d", req.Method, req.URL.Path, resp.Status, body, status)
	}
	err = openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: resp.StatusCode, Header: resp.Header, Body: io.NopCloser(bytes.NewReader(body)), Options: options,
	})
	if err != nil {
		t.Errorf("%s %s: %s %s: %v", req.Method, req.URL.Path, resp.Status, body, err)
	}
}
