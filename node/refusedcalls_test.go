package node

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Every method that a node serves over gRPC is refused before a message is read if too many calls are open, also if the call's deadline is far.
func TestEveryMethodIsRefused(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	n, err := build(t.Context(), Network{}, opts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	services := n.grpc.GetServiceInfo()
	n.close()
	info, _, _ := start(t, opts)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(conn *grpc.ClientConn, calls int, method string) (last grpc.ClientStream) {
		for range calls {
			if last, err = conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method); err != nil {
				t.Fatal(err)
			}
		}
		return last
	}
	var conns [2]*grpc.ClientConn
	for i := range conns {
		if conns[i], err = grpc.NewClient(info.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conns[i].Close() }) // it was never used for writing
	}
	const method = weirv1.RateLimiter_StreamRateLimits_FullMethodName
	isRefused := func() bool {
		stream := open(conns[0], 1, method)
		return stream.CloseSend() == nil && status.Code(stream.RecvMsg(nil)) == codes.ResourceExhausted
	}
	open(conns[0], 2100, method) // more than half of all
	if isRefused() {
		t.Fatal("few calls are refused")
	}
	for open(conns[1], 2000, method); !isRefused(); { // the node counts them later
		open(conns[1], 1, method)
	}
	for service, info := range services {
		for _, m := range info.Methods {
			method := "/" + service + "/" + m.Name
			if err := open(conns[0], 1, method).RecvMsg(nil); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "begun and not ended") {
				t.Errorf("%s: %v", method, err)
			}
		}
	}
}
