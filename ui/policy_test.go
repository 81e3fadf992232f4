package ui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each answer of the dashboard forbids scripts that stand in a page, and pages that put it into a frame.
func TestPagesPermitNoInlineScript(t *testing.T) {
	s, _ := newEditor(t, referring)
	answers := map[string]func(w http.ResponseWriter, r *http.Request){
		"/ui/ring": func(w http.ResponseWriter, r *http.Request) { s.Refuse(w, r, true, "no role") }, // as one without the role is answered
	}
	for _, path := range []string{"/ui/rules", "/ui/new-rule", "/ui/sign-in", "/ui/inspect", "/ui/none"} {
		answers[path] = s.ServeHTTP
	}
	for path, answer := range answers {
		w := httptest.NewRecorder()
		answer(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		directives := make(map[string]string)
		for part := range strings.SplitSeq(w.Header().Get("Content-Security-Policy"), "; ") {
			name, sources, _ := strings.Cut(part, " ")
			directives[name] = sources
		}
		for name, want := range map[string]string{"default-src": "'none'", "script-src": "'self'", "base-uri": "'none'", "frame-ancestors": "'none'"} {
			if got := directives[name]; got != want {
				t.Errorf("%s: %s %s, want %s", path, name, got, want)
			}
		}
		if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
			t.Errorf("%s: X-Content-Type-Options: %q", path, got)
		}
	}
}
