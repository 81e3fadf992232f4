package api

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A body counts while it arrives and is answered. One that the node has no room for is refused, and counts no more.
func TestUnfinishedBodiesAreBounded(t *testing.T) {
	f := newFixture(t, inputRules)
	h := f.handler(t)
	for _, path := range []string{checkPath, "/json"} {
		t.Run(path, func(t *testing.T) {
			ask := func(others int64) *httptest.ResponseRecorder {
				f.unfinished.used.Store(others)
				w := httptest.NewRecorder()
				body := io.MultiReader(strings.NewReader(`{"identifier":"`+strings.Repeat("x", 2*fairUnfinished)), held{f, others}, strings.NewReader(`"}`))
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, body))
				if got := f.unfinished.used.Load(); got != others || len(f.unfinished.holders) != 0 {
					t.Errorf("%d bytes count after the answer, want %d", got, others)
				}
				return w
			}
			if w := ask(maxUnfinished / 2); w.Code == http.StatusServiceUnavailable {
				t.Errorf("with room: %d %s", w.Code, w.Body)
			}
			if w := ask(maxUnfinished); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "body: read: overloaded: too many requests have begun to arrive") {
				t.Errorf("without room: %d %s", w.Code, w.Body)
			}
		})
	}
}

// held fails to be read if the node does not hold more than others do.
type held struct {
	*fixture
	others int64
}

func (h held) Read([]byte) (int, error) {
	if got := h.unfinished.used.Load(); got <= h.others {
		return 0, fmt.Errorf("%d bytes are held, %d of others", got, h.others)
	}
	return 0, io.EOF
}

// The body of a gRPC call counts with a buffer for each part that is read.
func TestUnfinishedCallsAreCounted(t *testing.T) {
	f := newFixture(t, inputRules)
	part := keptBytes(callPart)
	for name, tc := range map[string]struct {
		parts []string
		held  int64
	}{
		"at once":  {[]string{"\x00\x00\x00\x00\x04weir"}, part},
		"in parts": {[]string{"\x00\x00", "\x00\x00\x04", "weir"}, 3 * part},
	} {
		t.Run(name, func(t *testing.T) {
			var readers []io.Reader
			for _, p := range tc.parts {
				readers = append(readers, strings.NewReader(p))
			}
			r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(readers...))
			b := countBody(f.unfinished, httptest.NewRecorder(), r, true)
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				t.Fatal(err)
			}
			if got := f.unfinished.used.Load(); got != tc.held {
				t.Errorf("%d bytes count, want %d", got, tc.held)
			}
			if b.release(); f.unfinished.used.Load() != 0 {
				t.Errorf("%d bytes count after the call", f.unfinished.used.Load())
			}
		})
	}
}
