package envoy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

func askEnvoy(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

func TestJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, descriptorRules).handler(t)
		const one = `{"domain":"edge","descriptors":[{"entries":[{"key":"banned","value":"x"}]}]}`
		for _, tc := range []struct {
			method, body string
			code         int
			want         string
		}{
			{"POST", `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`, 200,
				`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"name":"per-user","requestsPerUnit":3,"unit":"MINUTE"},"limitRemaining":2,"durationUntilReset":"60s"}]}`},
			{"POST", `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"a"}],"hitsAddend":"0"}]}`, 200,
				`{"overallCode":"OK","statuses":[{"code":"OK","currentLimit":{"name":"per-user","requestsPerUnit":3,"unit":"MINUTE"},"limitRemaining":2,"durationUntilReset":"60s"}]}`},
			{"POST", one, 429, `{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","currentLimit":{"unit":"MINUTE"},"durationUntilReset":"60s"}]}`},
			{"POST", `{"domain":"none","descriptors":[{}]}`, 200, `{"overallCode":"OK","statuses":[{"code":"OK"}]}`},
			{"POST", `{"descriptors":[{}]}`, 400, "domain: must not be empty\n"},
			{"POST", `{"domain":"edge"}`, 400, "descriptors: must not be empty\n"},
			{"POST", `{"domain":`, 400, "body: the JSON ends too early, after 10 bytes\n"},
			{"POST", `{"domain":"edge","more":1}`, 400, "body: line 1, column 18: unknown field \"more\"\n"},
			{"POST", `{"domain":"` + strings.Repeat("d", MaxMessage) + `"}`, 400, "body: more than 4194304 bytes\n"},
			{"GET", one, 405, "Method Not Allowed\n"},
		} {
			w := askEnvoy(h, tc.method, "/json", tc.body)
			if w.Code != tc.code || w.Body.String() != tc.want {
				t.Errorf("%s %.80s: %d %s\nwant %d %s", tc.method, tc.body, w.Code, w.Body, tc.code, tc.want)
			}
			if tc.code == 200 && w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%v", w.Header())
			}
		}
	})
}

func TestHealthcheck(t *testing.T) {
	for _, tc := range []struct {
		ready, needs bool
		rules        string
		code         int
		body         string
	}{
		{true, false, descriptorRules, 200, "OK"},
		{false, false, descriptorRules, 500, ""},
		{true, true, descriptorRules, 200, "OK"},
		{true, false, "{domain: d, rules: []}", 200, "OK"},
		{true, true, "{domain: d, rules: []}", 500, ""},
	} {
		f := newConfiguredFixture(t, tc.rules, Config{NeedsRules: tc.needs})
		f.ready = tc.ready
		if w := askEnvoy(f.handler(t), "GET", "/healthcheck", ""); w.Code != tc.code || w.Body.String() != tc.body {
			t.Errorf("%+v: %d %q", tc, w.Code, w.Body)
		}
	}
}

func TestRLConfig(t *testing.T) {
	h := newFixture(t, `
domain: edge
descriptors:
  - {key: a, value: b, shadow_mode: true, rate_limit: {unit: week, requests_per_unit: 7}}
  - key: c
    descriptors: [{key: d, quota_mode: true, rate_limit: {unlimited: true}}]
---
domain: shop
rules:
  - {id: x, limits: [{limit: 1, window: 90s}, {limit: 2, window: {calendar: day}, algorithm: fixed_window}]}
  - {id: y, unlimited: true}
`).handler(t)
	const want = `edge.a_b: unit=WEEK requests_per_unit=7, shadow_mode: true, quota_mode: false
edge.c.d: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: true
shop.x: limit=1 window=1m30s algorithm=sliding_window
shop.x: limit=2 window=day/UTC algorithm=fixed_window
shop.y: unlimited
`
	if w := askEnvoy(h, "GET", "/rlconfig", ""); w.Code != 200 || w.Body.String() != want {
		t.Errorf("%d %s\nwant %s", w.Code, w.Body, want)
	}
}
