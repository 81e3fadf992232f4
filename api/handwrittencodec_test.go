package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/apitest"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// decoders are the messages that are decoded by hand, put together again.
var decoders = map[string]apitest.Decoder{
	"RateLimitRequest": {
		Fresh: func() proto.Message { return &weirv1.RateLimitRequest{} },
		Decode: func(b []byte) (proto.Message, error) {
			m := &weirv1.RateLimitRequest{Identifier: "of", Peek: true, Attributes: map[string]string{"the": "last"}}
			return m, decodeRequest(wire.NewPart(b), m)
		},
	},
	"RateLimitBatchRequest": {
		Fresh: func() proto.Message { return &weirv1.RateLimitBatchRequest{} },
		Decode: func(b []byte) (proto.Message, error) {
			var l wire.List
			err := decodeBatch(wire.NewPart(b), &l)
			requests, err := decodeList(l, err)
			return &weirv1.RateLimitBatchRequest{Requests: requests}, err
		},
	},
	"StreamRateLimitsRequest": {
		Fresh: func() proto.Message { return &weirv1.StreamRateLimitsRequest{} },
		Decode: func(b []byte) (proto.Message, error) {
			var l wire.List
			m := &weirv1.StreamRateLimitsRequest{}
			err := decodeStream(wire.NewPart(b), &l, m)
			m.Requests, err = decodeList(l, err)
			return m, err
		},
	},
}

func decodeList(l wire.List, err error) (requests []*weirv1.RateLimitRequest, _ error) {
	for i := 0; i < len(l.Parts) && err == nil; i++ {
		m := &weirv1.RateLimitRequest{}
		err = decodeRequest(l.Parts[i], m)
		requests = append(requests, m)
	}
	return requests, err
}

// What is decoded by hand is what the library decodes, and what it refuses is refused.
func TestDecodeAsLibrary(t *testing.T) {
	for name, d := range decoders {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { d.CheckAsLibrary(t, apitest.Encodings(d.Fresh).Draw(t, "bytes")) })
		})
	}
}

// FuzzDecode is TestDecodeAsLibrary with bytes that are no message.
func FuzzDecode(f *testing.F) {
	for _, b := range []string{
		"", "\x0a", "\x0a\x01a\x12\x04user", "\x0a\x01\xff", "\x08\x01\x0d1234\x0912345678", "\x0b\x0c", "\x0b\x0b\x0c", "\x0c", "\x0f", "\x02\x00",
		"\x3a\x06\x0a\x01a\x12\x01b\x3a\x06\x0a\x01a\x12\x01c", "\x1a\x02\x08\x01\x1a\x02\x10\x01", "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "\x80\x80\x80\x80\x10\x01", "\xf8\xff\xff\xff\x3f\x01", "\x88\x00\x01",
	} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{"RateLimitRequest", "RateLimitBatchRequest", "StreamRateLimitsRequest"} {
			decoders[name].CheckAsLibrary(t, bytes.Clone(b))
		}
	})
}

// What is encoded by hand is what the library encodes.
func TestEncodeAsLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := apitest.DrawMessage(t, &weirv1.RateLimitResponse{})
		if got, want := appendResponse(nil, r), apitest.Marshal(t, r); !bytes.Equal(got, want) {
			t.Fatalf("got  %x\nwant %x\nof %v", got, want, r)
		}
		e := apitest.DrawMessage(t, &weirv1.CheckError{})
		got := appendError([]byte("before"), 3, status.New(codes.Code(e.GetCode()), e.GetMessage()))
		if want := append([]byte("before"), apitest.Marshal(t, &weirv1.StreamRateLimitsResponse{Error: e})...); !bytes.Equal(got, want) {
			t.Fatalf("got  %x\nwant %x\nof %v", got, want, e)
		}
	})
}

// sendBytes makes a call of bytes.
func (f *fixture) sendBytes(t *testing.T, method string, b []byte) error {
	t.Helper()
	var answer wire.Encoded
	return f.dial(t).Invoke(t.Context(), method, wire.CopyEncoded(b), &answer, grpc.ForceCodecV2(wire.Codec()))
}

// What cannot be decoded is the caller's fault, and the error says where it is.
func TestUndecodable(t *testing.T) {
	const (
		check = "/weir.v1.RateLimiter/CheckRateLimit"
		batch = "/weir.v1.RateLimiter/CheckRateLimitBatch"
	)
	f := newFixture(t, checkRules)
	for _, tc := range []struct{ method, message, want string }{
		{check, "\x0a\x05a", "message: the last 3 bytes cannot be decoded"},
		{check, "\x0a\x02a\xff", `identifier: "a\xff" is not UTF-8`},
		{check, "\x12\x01\xff", `identifier_type: "\xff" is not UTF-8`},
		{check, "\x1a\x01\xff", `endpoint: "\xff" is not UTF-8`},
		{check, "\x32\x01\xff", `domain: "\xff" is not UTF-8`},
		{check, "\x3a\x03\x0a\x01\xff", `attributes.key: "\xff" is not UTF-8`},
		{check, "\x3a\x06\x0a\x01a\x12\x01\xff", `attributes.value: "\xff" is not UTF-8`},
		{check, "\x1a\xc8\x01" + strings.Repeat("\xff", 200), `endpoint: "` + strings.Repeat(`\xff`, 200) + `" is not UTF-8`},
		{check, "\x1a\xac\x02" + strings.Repeat("\xff", 300), `endpoint: "` + strings.Repeat(`\xff`, 256) + `" is not UTF-8`},
		{batch, "\x08\x01\xff", "message: the last 1 bytes cannot be decoded"},
		{batch, "\x0a\x09\x0a\x01a\x12\x04user\x0a\x03\x0a\x01\xff", `requests[1].identifier: "\xff" is not UTF-8`},
		{batch, "\x0a\x01\x0f", "requests[0].message: the last 1 bytes cannot be decoded"},
		{check, "\xf8\xff\xff\xff\x3f\x01", "message: the last 6 bytes cannot be decoded"},
	} {
		refused(t, f.sendBytes(t, tc.method, []byte(tc.message)), tc.want)
	}
	if f.shard.Len() != 0 {
		t.Error("a refused request was counted")
	}
}

// A message of a stream that cannot be decoded is refused alone, by its id if that could
// be read.
func TestStreamUndecodable(t *testing.T) {
	f := newFixture(t, checkRules)
	s, err := f.dial(t).NewStream(t.Context(), &weirv1.RateLimiter_ServiceDesc.Streams[0], "/weir.v1.RateLimiter/StreamRateLimits", grpc.ForceCodecV2(wire.Codec()))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ message, want string }{
		{"\x08\x07\x12\x09\x0a\x01", "7: message: the last 4 bytes cannot be decoded"},
		{"\x08\x08\x12\x03\x0a\x01\xff", `8: requests[0].identifier: "\xff" is not UTF-8`},
		{"\x08\x09\x12\x09\x0a\x01a\x12\x04user", "9: "},
	} {
		if err := s.SendMsg(wire.CopyEncoded([]byte(tc.message))); err != nil {
			t.Fatal(err)
		}
		m := &weirv1.StreamRateLimitsResponse{}
		if err := s.RecvMsg(m); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d: %s", m.GetId(), m.GetError().GetMessage()); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// Interceptors see the calls whose messages stay encoded, by their names.
func TestInterceptor(t *testing.T) {
	f := newFixture(t, checkRules)
	var seen []string
	refuse := errors.New("refused")
	f.intercept = func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		seen = append(seen, info.FullMethod)
		if len(seen) == 2 {
			return nil, refuse
		}
		return handler(ctx, req)
	}
	client := weirv1.NewRateLimiterClient(f.dial(t))
	if r, err := client.CheckRateLimit(t.Context(), request("user=a")); err != nil || !r.GetAllowed() {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := client.CheckRateLimitBatch(t.Context(), batchOf(1)); status.Convert(err).Message() != refuse.Error() {
		t.Error(err)
	}
	if want := []string{weirv1.RateLimiter_CheckRateLimit_FullMethodName, weirv1.RateLimiter_CheckRateLimitBatch_FullMethodName}; !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}
