package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/client/httplimit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// An allowed request gets header fields and leaves the response to its handler.
func TestWriteAnswerAllowed(t *testing.T) {
	w := httptest.NewRecorder()
	answer := &weirv1.RateLimitResponse{
		Allowed: true, RuleId: "posts", Limit: 10, RemainingTokens: 4, Window: durationpb.New(time.Minute),
		ResetAfter: durationpb.New(30 * time.Second),
	}
	if httplimit.WriteAnswer(w, httplimit.DefaultStyle(), answer) {
		t.Error("an allowed answer counts as denied")
	}
	w.WriteHeader(http.StatusCreated)
	if w.Code != http.StatusCreated || w.Body.Len() != 0 {
		t.Errorf("status %d, body %q: the handler could not write its own", w.Code, w.Body)
	}
	for name, want := range map[string]string{"RateLimit": `"posts";r=4;t=30`, "X-RateLimit-Remaining": "4"} {
		if got := w.Header()[name]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
}
