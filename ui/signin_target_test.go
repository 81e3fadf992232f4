package ui

import "testing"

// A sign-in leads to a page of the dashboard only.
func TestTarget(t *testing.T) {
	for to, want := range map[string]string{
		"/ui/rules?q=a": "/ui/rules?q=a", "/ui/": "/ui/", "": "/ui/", "https://evil.example/": "/ui/", "//evil.example/ui/": "/ui/",
		"/ui/../v1/rules": "/ui/", "/ui//evil.example": "/ui/", "/ui/\\evil": "/ui/", "/v1/rules": "/ui/", "/ui/a\r\nb": "/ui/",
	} {
		if got := target(to); got != want {
			t.Errorf("%q leads to %q, want %q", to, got, want)
		}
	}
}
