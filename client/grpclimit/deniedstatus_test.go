package grpclimit_test

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/grpclimit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func TestDeniedStatus(t *testing.T) {
	answer := &weirv1.RateLimitResponse{
		RuleId: "posts", Limit: 10, Window: durationpb.New(time.Minute),
		ResetAfter: durationpb.New(30 * time.Second), RetryAfter: durationpb.New(3 * time.Second),
	}
	st := grpclimit.DeniedStatus(grpclimit.Style{}, answer, "user:alice")
	if st.Code() != codes.ResourceExhausted {
		t.Fatalf("code %v", st.Code())
	}
	if wait, ok := client.RetryAfter(st.Err()); !ok || wait != 3*time.Second {
		t.Errorf("retry after %v, %v", wait, ok)
	}
	var subject string
	for _, detail := range st.Details() {
		if quota, ok := detail.(*errdetails.QuotaFailure); ok {
			subject = quota.GetViolations()[0].GetSubject()
		}
	}
	if subject != "user:alice" {
		t.Errorf("subject %q", subject)
	}

	answer.Allowed = true
	if err := grpclimit.DeniedStatus(grpclimit.Style{}, answer, "user:alice").Err(); err != nil {
		t.Errorf("an allowed answer: %v", err)
	}
}
