package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// twice is a grpc.Compressor of messages that a node refuses: of two members.
type twice struct{ grpc.Compressor }

func (c twice) Do(w io.Writer, p []byte) error {
	var b bytes.Buffer
	if err := c.Compressor.Do(&b, p); err != nil {
		return err
	}
	_, err := w.Write(bytes.Repeat(b.Bytes(), 2))
	return err
}

// Compressed messages are answered as others are, over all that decodes them. Those that cannot be unpacked are refused, and leave room for others.
func TestCompressedMessages(t *testing.T) {
	f := newFixture(t, checkRules)
	padded := func(m proto.Message) proto.Message { // with a field that the node does not know
		m.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, 200<<10)))
		return m
	}
	calls := map[string]func(ctx context.Context, conn *grpc.ClientConn, options ...grpc.CallOption) error{
		"check": func(ctx context.Context, conn *grpc.ClientConn, options ...grpc.CallOption) error {
			return conn.Invoke(ctx, weirv1.RateLimiter_CheckRateLimit_FullMethodName, padded(request("user=a endpoint=/top")), new(weirv1.RateLimitResponse), options...)
		},
		"batch": func(ctx context.Context, conn *grpc.ClientConn, options ...grpc.CallOption) error {
			m := padded(&weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{request("user=a endpoint=/top")}})
			return conn.Invoke(ctx, weirv1.RateLimiter_CheckRateLimitBatch_FullMethodName, m, new(weirv1.RateLimitBatchResponse), options...)
		},
		"stream": func(ctx context.Context, conn *grpc.ClientConn, options ...grpc.CallOption) error {
			s, err := weirv1.NewRateLimiterClient(conn).StreamRateLimits(ctx, options...)
			if err != nil {
				return err
			}
			m := padded(&weirv1.StreamRateLimitsRequest{Id: 1, Requests: []*weirv1.RateLimitRequest{request("user=a endpoint=/top")}})
			if err := s.SendMsg(m); err != nil && !errors.Is(err, io.EOF) { // else Recv says why it has ended
				return err
			}
			if err := s.CloseSend(); err != nil {
				return err
			}
			a, err := s.Recv()
			if err == nil && len(a.GetResponses()) != 1 {
				t.Errorf("the answer is %v", a)
			}
			return err
		},
		"Envoy": func(ctx context.Context, conn *grpc.ClientConn, options ...grpc.CallOption) error {
			m := padded(&rlsv3.RateLimitRequest{Domain: "none"})
			err := conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, m, new(rlsv3.RateLimitResponse), options...)
			if status.Code(err) == codes.Unknown || status.Code(err) == codes.InvalidArgument { // it was read
				return nil
			}
			return err
		},
		"health": func(ctx context.Context, conn *grpc.ClientConn, options ...grpc.CallOption) error {
			m := padded(new(weirv1.GetHealthStatusRequest))
			return conn.Invoke(ctx, weirv1.RateLimiterHealth_GetHealthStatus_FullMethodName, m, new(weirv1.GetHealthStatusResponse), options...)
		},
	}
	good, bad := f.dial(t), f.dial(t, grpc.WithCompressor(twice{grpc.NewGZIPCompressor()})) //nolint:staticcheck // there is no other way to send them
	const more = maxUnpacked / (200 << 10) * 3 / 2                                          // than there is room for
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range more {
				if err := call(ctx, bad); status.Code(err) != codes.Internal {
					t.Fatalf("a message of two members: %v", err)
				}
				if err := call(ctx, good, grpc.UseCompressor(gzip.Name)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
