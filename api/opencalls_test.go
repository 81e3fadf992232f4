package api

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Calls that clients have begun and not ended have a bound on a node, which connections share. Connections that have less than their share are answered
// all the same, and all are once others have ended theirs.
func TestOpenCallsAreBounded(t *testing.T) {
	f := newFixture(t, checkRules)
	f.tap = f.Limiter.Tap
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(ctx context.Context, conn *grpc.ClientConn) (weirv1.RateLimiter_StreamRateLimitsClient, error) {
		return weirv1.NewRateLimiterClient(conn).StreamRateLimits(ctx)
	}
	answered := func(conn *grpc.ClientConn) error {
		s, err := open(ctx, conn)
		if err != nil {
			return err
		}
		if err := s.CloseSend(); err != nil {
			return err
		}
		if _, err := s.Recv(); err != io.EOF { //nolint:errorlint // gRPC returns it as it is
			return err
		}
		return nil
	}
	many, few := f.dial(t), f.dial(t) // few has less than half, which is its share
	held, end := context.WithCancel(ctx)
	defer end()
	begin := func(conn *grpc.ClientConn, calls int) {
		for range calls {
			before := f.unfinished.open.total.Load()
			if _, err := open(held, conn); err != nil {
				t.Fatal(err)
			}
			for f.unfinished.open.total.Load() == before && ctx.Err() == nil { // those that are read at once are refused together
				runtime.Gosched()
			}
		}
	}
	begin(many, maxOpenCalls)
	begin(few, fewCalls+1)
	if err := answered(few); err != nil {
		t.Errorf("a connection with few: %v", err)
	}
	if err := answered(many); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a connection with many: %v", err)
	}
	if _, err := weirv1.NewRateLimiterClient(many).CheckRateLimit(ctx, request("user=a endpoint=/posts")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a check of a connection with many: %v", err)
	}
	end()
	for f.unfinished.open.total.Load() > 0 && ctx.Err() == nil {
		runtime.Gosched()
	}
	if err := answered(many); err != nil {
		t.Errorf("after the others have ended: %v", err)
	}
}

// What a connection has sent that ends because the node holds too much begins no call any more.
func TestEndedConnectionsBeginNothing(t *testing.T) {
	f := newFixture(t, checkRules)
	client, server := net.Pipe()
	m := newMeteredConn(server, f.unread, f.unfinished)
	f.unfinished.used.Add(maxUnfinished) // of others
	in := newH2(http2.ClientPreface)
	for range 2 * fairUnfinished / 1024 {
		mustWrite(t, in.WriteData(1, false, lengthPrefixed(1024-5)))
	}
	mustWrite(t, in.begin(3))
	go func() { _, _ = client.Write(in.take()) }()
	for b := make([]byte, 1<<20); ; {
		n, err := m.Read(b)
		if n > fairUnfinished {
			t.Fatalf("%d bytes are read of a connection that holds too much", n)
		}
		if err != nil {
			if !errors.Is(err, net.ErrClosed) || f.unfinished.open.total.Load() != 0 {
				t.Errorf("%v, %d calls are open", err, f.unfinished.open.total.Load())
			}
			return
		}
	}
}
