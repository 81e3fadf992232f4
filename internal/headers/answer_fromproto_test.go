package headers

import (
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func TestOf(t *testing.T) {
	resp := func(change func(*weirv1.RateLimitResponse)) *weirv1.RateLimitResponse {
		r := &weirv1.RateLimitResponse{
			Allowed: true, RuleId: "posts", Limit: 10, Window: durationpb.New(time.Second), RemainingTokens: 4,
			ResetAfter: durationpb.New(1500 * time.Millisecond), ResetTime: 1_900_000_000,
		}
		change(r)
		return r
	}
	status := func(id string, limit uint32, window time.Duration, allowed bool) *weirv1.LimitStatus {
		return &weirv1.LimitStatus{
			RuleId: id, Limit: limit, Window: durationpb.New(window), Algorithm: "gcra", Allowed: allowed, ResetAfter: durationpb.New(time.Second),
		}
	}
	deny := func(r *weirv1.RateLimitResponse) {
		r.Allowed, r.RemainingTokens, r.RetryAfter = false, 0, durationpb.New(time.Second)
	}
	posts, hourly := Policy{"posts", 10, time.Second}, Policy{"posts[1]", 50, time.Hour}
	base := Answer{Policy: posts, Remaining: 4, Reset: 1500 * time.Millisecond, ResetTime: 1_900_000_000}
	changed := func(change func(*Answer)) Answer {
		a := base
		change(&a)
		return a
	}
	for _, tc := range []struct {
		name string
		resp *weirv1.RateLimitResponse
		want Answer
	}{
		{"nil", nil, Answer{Denied: true}},
		{"no rule", &weirv1.RateLimitResponse{Allowed: true, Source: weirv1.Source_SOURCE_NO_RULE}, Answer{}},
		{"no node decides", &weirv1.RateLimitResponse{RuleId: "posts", Limit: 10, Source: weirv1.Source_SOURCE_FAIL_CLOSED}, Answer{Denied: true}},
		{"one limit", resp(func(*weirv1.RateLimitResponse) {}), base},
		{"one that denies", resp(deny), changed(func(a *Answer) {
			a.Denied, a.Remaining, a.RetryAfter, a.Violated = true, 0, time.Second, []Policy{posts}
		})},
		{"an id that is not ASCII", resp(func(r *weirv1.RateLimitResponse) { r.RuleId = "tägl\nich" }),
			changed(func(a *Answer) { a.Policy.Name = "t%C3%A4gl%0Aich" })},
		{"a calendar", resp(func(r *weirv1.RateLimitResponse) { r.Window, r.Calendar = nil, proto.String("month") }),
			changed(func(a *Answer) { a.Policy.Window = 0 })},
		{"two limits of a rule, and a rule that counts twice", resp(func(r *weirv1.RateLimitResponse) {
			r.Limits = []*weirv1.LimitStatus{
				status("posts", 10, time.Second, true), status("posts", 50, time.Hour, true),
				status("posts", 10, time.Second, true), status("posts", 50, time.Hour, true), status("all", 9, time.Hour, true),
			}
		}), changed(func(a *Answer) { a.Others = []Policy{hourly, {"all", 9, time.Hour}} })},
		{"the second limit decides, and the third denies as well", resp(func(r *weirv1.RateLimitResponse) {
			deny(r)
			r.Limit, r.Window = 50, durationpb.New(time.Hour)
			r.Limits = []*weirv1.LimitStatus{
				status("posts", 10, time.Second, true), status("posts", 50, time.Hour, false), status("all", 9, time.Hour, false),
			}
		}), changed(func(a *Answer) {
			a.Denied, a.Remaining, a.RetryAfter, a.Policy = true, 0, time.Second, hourly
			a.Others, a.Violated = []Policy{posts, {"all", 9, time.Hour}}, []Policy{hourly, {"all", 9, time.Hour}}
		})},
		{"a shadow and an undecided one", resp(func(r *weirv1.RateLimitResponse) {
			deny(r)
			shadow, silent := status("new", 1, time.Second, false), status("far", 2, time.Second, false)
			shadow.Shadow, silent.ResetAfter = true, nil
			r.Limits = []*weirv1.LimitStatus{shadow, status("posts", 10, time.Second, false), silent}
		}), changed(func(a *Answer) {
			a.Denied, a.Remaining, a.RetryAfter = true, 0, time.Second
			a.Others, a.Violated = []Policy{{"far", 2, time.Second}}, []Policy{posts}
		})},
	} {
		got := Of(tc.resp)
		if len(got.Others) == 0 {
			got.Others = nil // no client tells them apart
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}
