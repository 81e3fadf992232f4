package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Only Envoy's requests may be longer than others.
func TestMessagesAreBounded(t *testing.T) {
	f := newFixture(t, checkRules)
	conn := f.dial(t)
	identifier := strings.Repeat("x", MaxMessage)
	checks := weirv1.NewRateLimiterClient(conn)
	stream, err := checks.StreamRateLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"check": func() error {
			_, err := checks.CheckRateLimit(t.Context(), &weirv1.RateLimitRequest{Identifier: identifier})
			return err
		},
		"status": func() error {
			_, err := checks.GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{Identifier: identifier})
			return err
		},
		"stream": func() error {
			if err := stream.Send(&weirv1.StreamRateLimitsRequest{Requests: []*weirv1.RateLimitRequest{{Identifier: identifier}}}); err != nil {
				return err
			}
			_, err := stream.Recv()
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "bytes are more than 262144") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := checks.GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "a"}); err != nil {
		t.Errorf("a short one: %v", err)
	}
}
