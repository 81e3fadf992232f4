package headers

import (
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/dunglas/httpsfv"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// some is an answer of which no two numbers are the same.
func some() Answer {
	return Answer{
		Policy:    Policy{Name: "posts", Limit: 100, Window: time.Minute},
		Remaining: 7, Reset: 29500 * time.Millisecond, ResetTime: 1_900_000_030,
		Others: []Policy{{"daily", 1000, 24 * time.Hour}, {"of-month", 5000, 0}, {"fast", 3, 100 * time.Millisecond}},
	}
}

func denied() Answer {
	a := some()
	a.Denied, a.Remaining, a.RetryAfter = true, 0, 4200*time.Millisecond
	a.Violated = []Policy{a.Policy, a.Others[0]}
	return a
}

// lines returns all fields, sorted.
func lines(h http.Header) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		all = append(all, name+": "+strings.Join(h[name], " | "))
	}
	return strings.Join(all, "\n")
}

// field returns a field whose name is not in the spelling of package http.
func field(h http.Header, name string) []string { return h[name] }

func TestSet(t *testing.T) {
	hopeless, nothing := denied(), Answer{Denied: true}
	hopeless.RetryAfter = 0
	for _, tc := range []struct {
		name  string
		style Style
		a     Answer
		want  string
	}{
		{"draft", Style{Forms: []Form{Draft}}, some(), `
RateLimit: "posts";r=7;t=30
RateLimit-Policy: "posts";q=100;w=60, "daily";q=1000;w=86400, "of-month";q=5000, "fast";q=3;w=1`},
		{"draft, denied", Style{Forms: []Form{Draft}}, denied(), `
RateLimit: "posts";r=0;t=5
RateLimit-Policy: "posts";q=100;w=60, "daily";q=1000;w=86400, "of-month";q=5000, "fast";q=3;w=1
Retry-After: 5`},
		{"draft-7", Style{Forms: []Form{Draft7}}, some(), `
RateLimit: limit=100, remaining=7, reset=30
RateLimit-Policy: 100;w=60, 1000;w=86400, 5000, 3;w=1`},
		{"draft-6, denied", Style{Forms: []Form{Draft6}}, denied(), `
RateLimit-Limit: 100
RateLimit-Policy: 100;w=60, 1000;w=86400, 5000, 3;w=1
RateLimit-Remaining: 0
RateLimit-Reset: 5
Retry-After: 5`},
		{"x-ratelimit, denied", Style{Forms: []Form{XRateLimit}}, denied(), `
Retry-After: 5
X-RateLimit-Limit: 100
X-RateLimit-Remaining: 0
X-RateLimit-Reset: 30
X-Ratelimit-Retry-After: 5`},
		{"epoch", Style{Forms: []Form{Draft6, XRateLimit}, Epoch: true}, some(), `
RateLimit-Limit: 100
RateLimit-Policy: 100;w=60, 1000;w=86400, 5000, 3;w=1
RateLimit-Remaining: 7
RateLimit-Reset: 30
X-RateLimit-Limit: 100
X-RateLimit-Remaining: 7
X-RateLimit-Reset: 1900000030`},
		{"none", Style{}, some(), ``},
		{"none, denied", Style{}, denied(), `
Retry-After: 5`},
		{"no wait helps", Style{Forms: []Form{Draft, XRateLimit}}, hopeless, `
RateLimit: "posts";r=0;t=30
RateLimit-Policy: "posts";q=100;w=60, "daily";q=1000;w=86400, "of-month";q=5000, "fast";q=3;w=1
X-RateLimit-Limit: 100
X-RateLimit-Remaining: 0
X-RateLimit-Reset: 30`},
		{"no node has decided", DefaultStyle(), nothing, ``},
	} {
		h := make(http.Header)
		if err := tc.style.Set(h, tc.a); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if got := lines(h); got != strings.TrimSpace(tc.want) {
			t.Errorf("%s:\n%s\nwant%s", tc.name, got, tc.want)
		}
	}
}

func TestNamesThatAreNoStrings(t *testing.T) {
	a := some()
	a.Others[0].Name = "täglich"
	if err := DefaultStyle().Set(make(http.Header), a); err == nil {
		t.Error("a name that is not ASCII was said")
	}
}

// Rules of any name and with numbers of any size can be written.
func TestAnyAnswerCanBeWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		forever := &durationpb.Duration{Seconds: math.MaxInt64}
		resp := &weirv1.RateLimitResponse{
			RuleId: string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "id")), Limit: math.MaxUint32, RemainingTokens: math.MaxUint32,
			Window: forever, ResetAfter: forever, RetryAfter: forever, ResetTime: math.MaxInt64,
		}
		resp.Limits = []*weirv1.LimitStatus{
			{RuleId: resp.GetRuleId(), Limit: math.MaxUint32, Window: forever, ResetAfter: forever}, {RuleId: resp.GetRuleId(), Limit: 1},
		}
		a := Of(resp)
		for form := range forms {
			h := make(http.Header)
			if err := (Style{Forms: []Form{form}, Jitter: MaxJitter, Epoch: true}).Set(h, a); err != nil {
				t.Errorf("%v: %v", form, err)
			}
		}
		st := DefaultStyle().Status(a, resp.GetRuleId())
		if len(st.Details()) != 3 || !utf8.ValidString(st.Message()) {
			t.Errorf("%v %v", st, st.Details())
		}
	})
}

// However many policies apply, proxies have room for the fields.
func TestManyPolicies(t *testing.T) {
	a := denied()
	for i := range 1000 {
		p := Policy{strings.Repeat("r", 128) + "[" + strconv.Itoa(i%10) + "]", math.MaxInt32, 366 * 24 * time.Hour}
		a.Others, a.Violated = append(a.Others, p), append(a.Violated, p)
	}
	h := make(http.Header)
	if err := DefaultStyle().Set(h, a); err != nil {
		t.Fatal(err)
	}
	if n := len(lines(h)); n < 500 || n > 2000 {
		t.Errorf("%d bytes", n)
	}
	list, err := httpsfv.UnmarshalList(field(h, "RateLimit-Policy"))
	if err != nil || len(list) != maxPolicies || len(ProblemOf(a).Violated) != maxPolicies {
		t.Errorf("%d policies, %d violated, %v", len(list), len(ProblemOf(a).Violated), err)
	}
	if got := list[0].(httpsfv.Item).Value; got != "posts" {
		t.Errorf("the first is %v, not the one that decided", got)
	}
}
