package grpclimit_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/client/embedded"
	"github.com/weirlimit/weir/client/grpclimit"
)

func Example() {
	// In production client.New("10.0.0.1:9090").
	weir, err := embedded.New("domain: default\nrules:\n- {id: per-key, per: [api_key], limits: [{limit: 2, window: 1d}]}\n")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = weir.Close() }()
	limit, err := grpclimit.New(weir, grpclimit.APIKey("x-api-key"))
	if err != nil {
		fmt.Println(err)
		return
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	defer server.Stop()

	// What the server does for every call:
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-api-key", "secret"))
	for range 3 {
		reply, err := limit.Unary(ctx, "request", nil, func(context.Context, any) (any, error) { return "reply", nil })
		fmt.Println(reply, err)
	}
	// Output:
	// reply <nil>
	// reply <nil>
	// <nil> rpc error: code = ResourceExhausted desc = the limit per-key, 2 in 24h0m0s, has no room now
}
