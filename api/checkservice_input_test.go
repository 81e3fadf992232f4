package api

import (
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const inputRules = "domain: default\nrules:\n- {id: all, limits: [{limit: 5000, window: 1h}]}\n"

var (
	long64  = strings.Repeat("k", 64)
	long65  = strings.Repeat("k", 65)
	long256 = strings.Repeat("v", 256)
	long257 = strings.Repeat("v", 257)
)

// numbered returns n attributes of the longest names and values, with numbers at the names' beginnings.
func numbered(n int) map[string]string {
	m := make(map[string]string, n)
	for i := range n {
		m[string(rune('A'+i))+long64[1:]] = long256
	}
	return m
}

type edit = func(*weirv1.RateLimitRequest)

// badRequests are what is wrong with a request, by the message.
var badRequests = map[string]edit{
	`identifier: must not be empty`:                                                    func(r *weirv1.RateLimitRequest) { r.Identifier = "" },
	`identifier: 257 bytes are more than 256`:                                          func(r *weirv1.RateLimitRequest) { r.Identifier = long257 },
	`identifier_type: must not be empty`:                                               func(r *weirv1.RateLimitRequest) { r.IdentifierType = "" },
	`identifier_type: 65 bytes are more than 64`:                                       func(r *weirv1.RateLimitRequest) { r.IdentifierType = long65 },
	`identifier_type: "endpoint" is the name of another field`:                         func(r *weirv1.RateLimitRequest) { r.IdentifierType = "endpoint" },
	`endpoint: 257 bytes are more than 256`:                                            func(r *weirv1.RateLimitRequest) { r.Endpoint = long257 },
	`tokens_requested: -2147483649 is not between -2147483648 and 2147483648`:          func(r *weirv1.RateLimitRequest) { r.TokensRequested = -1<<31 - 1 },
	`identifier: "alice" is not an IP address`:                                         func(r *weirv1.RateLimitRequest) { r.IdentifierType = "ip" },
	`tokens_requested: 2147483649 is not between -2147483648 and 2147483648`:           func(r *weirv1.RateLimitRequest) { r.TokensRequested = 1<<31 + 1 },
	`domain: 65 bytes are more than 64`:                                                func(r *weirv1.RateLimitRequest) { r.Domain = long65 },
	`attributes: 15 entries are more than 14`:                                          func(r *weirv1.RateLimitRequest) { r.Attributes = numbered(15) },
	`attributes: key: must not be empty`:                                               func(r *weirv1.RateLimitRequest) { r.Attributes = map[string]string{"": "x"} },
	`attributes: key: 65 bytes are more than 64`:                                       func(r *weirv1.RateLimitRequest) { r.Attributes = map[string]string{long65: "x"} },
	`attributes["user"]: is set by another field already`:                              func(r *weirv1.RateLimitRequest) { r.Attributes = map[string]string{"user": "x"} },
	`attributes["endpoint"]: is set by another field already`:                          func(r *weirv1.RateLimitRequest) { r.Attributes = map[string]string{"endpoint": "x"} },
	`attributes["q\"\n"]: 257 bytes are more than 256`:                                 func(r *weirv1.RateLimitRequest) { r.Attributes = map[string]string{"q\"\n": long257} },
	`tokens_requested: -9223372036854775808 is not between -2147483648 and 2147483648`: func(r *weirv1.RateLimitRequest) { r.TokensRequested = -1 << 63 },
}

// goodRequests are at the bounds.
var goodRequests = map[string]edit{
	"identifier":       func(r *weirv1.RateLimitRequest) { r.Identifier = long256 },
	"identifier_type":  func(r *weirv1.RateLimitRequest) { r.IdentifierType = long64 },
	"endpoint":         func(r *weirv1.RateLimitRequest) { r.Endpoint = long256 },
	"no endpoint":      func(r *weirv1.RateLimitRequest) { r.Endpoint = "" },
	"tokens_requested": func(r *weirv1.RateLimitRequest) { r.TokensRequested = 1 << 31 },
	"timestamp":        func(r *weirv1.RateLimitRequest) { r.Timestamp = -1 << 63 },
	"domain":           func(r *weirv1.RateLimitRequest) { r.Domain = long64 },
	"attributes":       func(r *weirv1.RateLimitRequest) { r.Attributes = numbered(14) },
	"empty attribute":  func(r *weirv1.RateLimitRequest) { r.Attributes = map[string]string{"a": ""} },
	"bytes, not runes": func(r *weirv1.RateLimitRequest) { r.Identifier = strings.Repeat("é", 128) },
}

// refused reports an error that is not the INVALID_ARGUMENT that it should be.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	if st := status.Convert(err); st.Code() != codes.InvalidArgument || st.Message() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestCheckRefuses(t *testing.T) {
	f := newFixture(t, inputRules)
	client := weirv1.NewRateLimiterClient(f.dial(t))
	for want, spoil := range badRequests {
		req := request("user=alice endpoint=/posts")
		spoil(req)
		_, err := client.CheckRateLimit(t.Context(), req)
		refused(t, err, want)
	}
	if f.shard.Len() != 0 {
		t.Error("a refused request was counted")
	}
	for name, spoil := range goodRequests {
		req := request("user=alice endpoint=/posts")
		spoil(req)
		if _, err := client.CheckRateLimit(t.Context(), req); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// batchOf returns n small requests.
func batchOf(n int) *weirv1.RateLimitBatchRequest {
	b := &weirv1.RateLimitBatchRequest{}
	for range n {
		b.Requests = append(b.Requests, request("user=alice endpoint=/posts"))
	}
	return b
}

func TestBatchRefuses(t *testing.T) {
	f := newFixture(t, inputRules)
	client := weirv1.NewRateLimiterClient(f.dial(t))
	for n, want := range map[int]string{0: "requests: must not be empty", 1001: "requests: 1001 items are more than 1000"} {
		_, err := client.CheckRateLimitBatch(t.Context(), batchOf(n))
		refused(t, err, want)
	}
	for want, spoil := range badRequests {
		b := batchOf(5)
		spoil(b.Requests[3])
		_, err := client.CheckRateLimitBatch(t.Context(), b)
		refused(t, err, "requests[3]."+want)
	}
	if f.shard.Len() != 0 {
		t.Error("a refused batch was counted")
	}
	resp, err := client.CheckRateLimitBatch(t.Context(), batchOf(1000))
	if err != nil || len(resp.GetResponses()) != 1000 || resp.GetResponses()[999].GetRemainingTokens() != 4000 {
		t.Errorf("1000 items: %d responses, %v", len(resp.GetResponses()), err)
	}
}

// A request is bounded in what it makes the cluster do, too.
func TestTooManyLimits(t *testing.T) {
	eight := `[{limit: 9, window: 1s}, {limit: 9, window: 2s}, {limit: 9, window: 3s}, {limit: 9, window: 4s},
  {limit: 9, window: 5s}, {limit: 9, window: 6s}, {limit: 9, window: 7s}, {limit: 9, window: 8s}]`
	var text strings.Builder
	text.WriteString("domain: default\nrules:\n- {id: last, when: {endpoint: /more}, limits: [{limit: 9, window: 1s}]}\n")
	for name := range maps.Keys(numbered(2)) { // 2 x 64 rules of 8 limits are 1024
		for i := range 64 {
			text.WriteString("- {id: " + name[:1] + string(rune('0'+i/8)) + string(rune('0'+i%8)) + ", limits: " + eight + "}\n")
		}
	}
	f := newFixture(t, text.String())
	const want = "rules: 1025 limits apply to the request, more than 1024"
	_, err := f.server().CheckRateLimit(t.Context(), request("user=a endpoint=/more"))
	refused(t, err, want)
	_, err = f.server().CheckRateLimitBatch(t.Context(), &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{
		request("user=a"), request("user=a endpoint=/more"),
	}})
	refused(t, err, "requests[1]."+want)
	seventeen := &weirv1.RateLimitBatchRequest{}
	for range 17 { // of 1024 limits each
		seventeen.Requests = append(seventeen.Requests, request("user=a"))
	}
	_, err = f.server().CheckRateLimitBatch(t.Context(), seventeen)
	refused(t, err, "requests[16].rules: 17408 limits apply up to here, more than 16384 for a batch")
	if f.shard.Len() != 0 {
		t.Error("a refused request was counted")
	}
	if got := f.check(t, "user=a"); got.GetRemainingTokens() != 8 {
		t.Errorf("1024 limits: %v", got)
	}
}
