package headers

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func TestStatus(t *testing.T) {
	info := func(reason string, metadata map[string]string) proto.Message {
		return &errdetails.ErrorInfo{Reason: reason, Domain: "weir.v1", Metadata: metadata}
	}
	posts := map[string]string{"policy": "posts", "limit": "100"}
	violations := func(subject string, hopeless bool) proto.Message {
		end := ", has no room now"
		if hopeless {
			end = ", will never have room for it"
		}
		return &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: subject, Description: "the limit posts, 100 in 1m0s" + end, QuotaId: "posts", QuotaValue: 100},
			{Subject: subject, Description: "the limit daily, 1000 in 24h0m0s" + end, QuotaId: "daily", QuotaValue: 1000},
		}}
	}
	retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(4200 * time.Millisecond)}
	hopeless, odd := denied(), denied()
	hopeless.RetryAfter = 0
	odd.Violated[0].Name = "\xff"
	for _, tc := range []struct {
		a             Answer
		subject, text string
		want          []proto.Message
	}{
		{denied(), "user:alice", "the limit posts, 100 in 1m0s, has no room now",
			[]proto.Message{info("RATE_LIMIT_EXCEEDED", posts), violations("user:alice", false), retry}},
		{denied(), "user:\xff", "the limit posts, 100 in 1m0s, has no room now",
			[]proto.Message{info("RATE_LIMIT_EXCEEDED", posts), violations("user:\uFFFD", false), retry}},
		{hopeless, "", "the limit posts, 100 in 1m0s, will never have room for it",
			[]proto.Message{info("RATE_LIMIT_EXCEEDED", posts), violations("", true)}},
		{Answer{Denied: true}, "user:alice", "no node could decide in time whether the limit has room",
			[]proto.Message{info("RATE_LIMIT_UNDECIDED", nil)}},
		{odd, "", "the limit \xff, 100 in 1m0s, has no room now", nil},
	} {
		st := Style{}.Status(tc.a, tc.subject)
		if st.Code() != codes.ResourceExhausted || st.Message() != tc.text || len(st.Details()) != len(tc.want) {
			t.Errorf("%v", st)
			continue
		}
		for i, d := range st.Details() {
			if got, ok := d.(proto.Message); !ok || !proto.Equal(got, tc.want[i]) {
				t.Errorf("%s: got %v, want %s", tc.text, d, prototext.Format(tc.want[i]))
			}
		}
	}
}

func TestStatusJitter(t *testing.T) {
	seen := make(map[string]bool)
	for range 100 {
		for _, d := range (Style{Jitter: 10}).Status(denied(), "").Details() {
			retry, ok := d.(*errdetails.RetryInfo)
			if !ok {
				continue
			}
			delay := retry.GetRetryDelay().AsDuration()
			if delay < 4200*time.Millisecond || delay > 4620*time.Millisecond {
				t.Errorf("told %v", delay)
			}
			seen[fmt.Sprint(delay)] = true
		}
	}
	if len(seen) < 90 {
		t.Errorf("%d different ones of 100", len(seen))
	}
}
