package bench

import (
	"testing"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// TestRequests: a request is the template but for its identifier.
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
		template := &weirv1.RateLimitRequest{
			IdentifierType: test.kind, Identifier: test.first, Endpoint: "/a", Domain: "shop",
			Attributes: map[string]string{"method": "GET"}, TokensRequested: 3, Peek: true,
		}
		request, err := Requests(template, keys)
		if err != nil {
			t.Fatalf("%s: %v", test.first, err)
		}
		want := proto.CloneOf(template)
		want.Identifier = test.want
		if got := request(test.key); !proto.Equal(got, want) {
			t.Errorf("%s, key %d: got %v, want %v", test.first, test.key, got, want)
		}
	}
	if _, err := Requests(&weirv1.RateLimitRequest{IdentifierType: "ip", Identifier: "250.10.31.1"}, keys); err == nil {
		t.Error("addresses beyond the last are no error")
	}
}
