package main

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// fakeNode answers every call alike and keeps the last check.
type fakeNode struct {
	weirv1.UnimplementedRateLimiterServer
	weirv1.UnimplementedRateLimiterHealthServer
	weirv1.UnimplementedClusterServer
	weirv1.UnimplementedRateLimiterConfigServer

	check   *weirv1.RateLimitRequest
	answer  *weirv1.RateLimitResponse
	nodes   *weirv1.ListNodesResponse
	config  fakeConfig
	ring    *weirv1.GetRingResponse
	failure error // instead of an answer
	drain   []*weirv1.DrainNodeRequest
	removed []string
	tokens  []*weirv1.CreateAccessTokenRequest
	id      string // in its health
	imports []bool // whether each was dry
	reset   *weirv1.ResetRateLimitRequest
	silent  bool // never answer
}

func (f *fakeNode) CheckRateLimit(_ context.Context, request *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	f.check = request
	return f.answer, f.failure
}

func (f *fakeNode) ResetRateLimit(_ context.Context, request *weirv1.ResetRateLimitRequest) (*weirv1.ResetRateLimitResponse, error) {
	f.reset = request
	return &weirv1.ResetRateLimitResponse{}, f.failure
}

func (f *fakeNode) ListNodes(ctx context.Context, _ *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	if f.silent {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if f.config.looks != nil {
		return f.config.look(), nil
	}
	return f.nodes, f.failure
}

func (f *fakeNode) GetHealthStatus(context.Context, *weirv1.GetHealthStatusRequest) (*weirv1.GetHealthStatusResponse, error) {
	return &weirv1.GetHealthStatusResponse{NodeId: f.id}, f.failure
}

func (f *fakeNode) DrainNode(_ context.Context, request *weirv1.DrainNodeRequest) (*weirv1.DrainNodeResponse, error) {
	f.drain = append(f.drain, request)
	return &weirv1.DrainNodeResponse{ToHandOver: 7}, f.failure
}

func (f *fakeNode) RemoveNode(_ context.Context, request *weirv1.RemoveNodeRequest) (*weirv1.RemoveNodeResponse, error) {
	f.removed = append(f.removed, request.GetNodeId())
	return &weirv1.RemoveNodeResponse{View: 9, Member: request.GetNodeId() == "late"}, f.failure
}

func (f *fakeNode) ImportView(_ context.Context, request *weirv1.ImportViewRequest) (*weirv1.ImportViewResponse, error) {
	f.imports = append(f.imports, request.GetDryRun())
	return &weirv1.ImportViewResponse{
		Cluster: "shop", Reason: "etcd was wiped", View: 8, Members: []string{"a", "b"}, StoreRevision: 3,
	}, f.failure
}

func (f *fakeNode) GetRing(_ context.Context, request *weirv1.GetRingRequest) (*weirv1.GetRingResponse, error) {
	if request.GetTables() != (f.ring.GetOwners() != nil) {
		return nil, status.Error(codes.Internal, "the flag --tables has not arrived")
	}
	return f.ring, f.failure
}

// listen starts a fake node and returns its address. A nil fake is a gRPC server
// without services.
func listen(t *testing.T, fake *fakeNode) string {
	t.Helper()
	return listenWith(t, func(server *grpc.Server) {
		if fake != nil {
			weirv1.RegisterRateLimiterServer(server, fake)
			weirv1.RegisterRateLimiterHealthServer(server, fake)
			weirv1.RegisterClusterServer(server, fake)
			weirv1.RegisterRateLimiterConfigServer(server, fake)
		}
	})
}

// listenWith starts a gRPC server of what is registered and returns its address.
func listenWith(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}
