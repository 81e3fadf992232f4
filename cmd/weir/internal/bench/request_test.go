package bench

import (
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// TestRequests: requests differ in their identifier, and in nothing else.
func TestRequests(t *testing.T) {
	tests := []struct {
		kind, first string
		key         uint64
		want        string
	}{
		{"user", "alice", 0, "alice-0"},
		{"user", "alice", 99_999_999, "alice-99999999"},
		{"ip", "10.0.0.0", 0, "10.0.0.0"},
		{"ip", "10.0.255.250", 261, "10.1.0.255"},
		{"ip", "250.10.31.0", 99_999_999, "255.255.255.255"},
	}
	keys := newTestKeys(t, Uniform, MaxKeys)
	for _, test := range tests {
		r, err := NewRequests("", 3, []Attribute{{"endpoint", "/a"}, {test.kind, test.first}, {"method", "GET"}}, keys)
		if err != nil {
			t.Fatalf("%s: %v", test.first, err)
		}
		native := &weirv1.RateLimitRequest{
			IdentifierType: test.kind, Identifier: test.want, Endpoint: "/a",
			Attributes: map[string]string{"method": "GET"}, TokensRequested: 3,
		}
		if got := r.native(test.key); !proto.Equal(got, native) {
			t.Errorf("%s, key %d: got %v, want %v", test.first, test.key, got, native)
		}
		// Descriptors keep the order, by which envoyproxy/ratelimit matches.
		envoy := &rlsv3.RateLimitRequest{Domain: "default", HitsAddend: 3, Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "endpoint", Value: "/a"}, {Key: test.kind, Value: test.want}, {Key: "method", Value: "GET"}}},
		}}
		if got := r.envoy([]uint64{test.key}); !proto.Equal(got, envoy) {
			t.Errorf("%s, key %d: got %v, want %v", test.first, test.key, got, envoy)
		}
	}
	r, err := NewRequests("shop", 1, []Attribute{{"user", "a"}}, keys)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.envoy([]uint64{1, 2}); got.GetDomain() != "shop" || len(got.GetDescriptors()) != 2 || r.native(0).GetDomain() != "shop" {
		t.Errorf("got %v", got)
	}
	if _, err := NewRequests("", 1, []Attribute{{"ip", "250.10.31.1"}}, keys); err == nil {
		t.Error("addresses beyond the last are no error")
	}
}
