package headers

import (
	"net/http/httptest"
	"testing"
)

func TestProblem(t *testing.T) {
	hopeless := denied()
	hopeless.RetryAfter, hopeless.Violated = 0, hopeless.Others[1:2]
	for _, tc := range []struct {
		p    Problem
		code int
		want string
	}{
		{ProblemOf(denied()), 429, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
			`"detail":"the limit posts, 100 in 1m0s, has no room now","violated-policies":["posts","daily"]}`},
		{ProblemOf(hopeless), 429, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded","status":429,` +
			`"detail":"the limit of-month, 5000, will never have room for it","violated-policies":["of-month"]}`},
		{ProblemOf(Answer{Denied: true}), 429, `{"type":"about:blank","title":"Too Many Requests","status":429,` +
			`"detail":"no node could decide in time whether the limit has room"}`},
		{Overloaded("busy"), 503, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",` +
			`"title":"Temporary Reduced Capacity","status":503,"detail":"busy"}`},
	} {
		w := httptest.NewRecorder()
		tc.p.Write(w)
		if got := w.Body.String(); w.Code != tc.code || got != tc.want+"\n" {
			t.Errorf("%d\n got %swant %s", w.Code, got, tc.want)
		}
		if w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v", w.Header())
		}
	}
}
