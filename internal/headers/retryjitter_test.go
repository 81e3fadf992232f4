package headers

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"pgregory.net/rapid"
)

// A client that comes back when it is told to is never too early, nor later than the
// share allows.
func TestJitter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wait := time.Duration(rapid.Int64Range(1, math.MaxInt64).Draw(t, "wait"))
		if rapid.Bool().Draw(t, "short") {
			wait = time.Duration(rapid.Int64Range(1, int64(time.Minute)).Draw(t, "short wait"))
		}
		a, s := denied(), Style{Forms: []Form{Draft, XRateLimit}, Jitter: rapid.IntRange(0, MaxJitter).Draw(t, "jitter")}
		a.RetryAfter = wait
		h := make(http.Header)
		if err := s.Set(h, a); err != nil {
			t.Fatal(err)
		}
		told, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		late := told - seconds(wait)
		if most := seconds(wait/100*time.Duration(s.Jitter)) + 1; late < 0 || late > most || s.Jitter == 0 && late != 0 {
			t.Errorf("%d s are told for %v, with %d %%", told, wait, s.Jitter)
		}
		list, err := httpsfv.UnmarshalList(field(h, "RateLimit"))
		if err != nil {
			t.Fatal(err)
		}
		if window, _ := list[0].(httpsfv.Item).Params.Get("t"); window != told || h.Get("X-Ratelimit-Retry-After") != h.Get("Retry-After") {
			t.Errorf("two times are told: %v", h)
		}
	})
}

func TestJitterSpreads(t *testing.T) {
	told := make(map[string]int)
	for range 1000 {
		h := make(http.Header)
		if err := (Style{Jitter: 50}).Set(h, Answer{Denied: true, RetryAfter: 10 * time.Second}); err != nil {
			t.Fatal(err)
		}
		told[h.Get("Retry-After")]++
	}
	for s := 11; s <= 15; s++ {
		if n := told[strconv.Itoa(s)]; n < 100 || n > 300 {
			t.Errorf("%d of 1000 are told %d s: %v", n, s, told)
		}
	}
}
