package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// baseline decides nothing, and answers what a check answers.
type baseline struct {
	weirv1.UnimplementedRateLimiterServer
}

func (baseline) CheckRateLimit(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return baselineAnswer(), nil
}

func (baseline) CheckRateLimitBatch(_ context.Context, req *weirv1.RateLimitBatchRequest) (*weirv1.RateLimitBatchResponse, error) {
	return &weirv1.RateLimitBatchResponse{Responses: baselineAnswers(len(req.GetRequests()))}, nil
}

func (baseline) StreamRateLimits(stream weirv1.RateLimiter_StreamRateLimitsServer) error {
	for {
		req, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		resp := &weirv1.StreamRateLimitsResponse{Id: req.GetId(), Responses: baselineAnswers(len(req.GetRequests()))}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

func baselineAnswers(n int) []*weirv1.RateLimitResponse {
	all := make([]*weirv1.RateLimitResponse, n)
	for i := range all {
		all[i] = baselineAnswer()
	}
	return all
}

func baselineAnswer() *weirv1.RateLimitResponse {
	return &weirv1.RateLimitResponse{
		Allowed: true, Limit: 1_000_000_000, RemainingTokens: 999_999_999, ResetTime: 1_800_000_000,
		RuleId: "per-user", Source: weirv1.Source_SOURCE_OWNER,
		Window: durationpb.New(24 * time.Hour), ResetAfter: durationpb.New(40 * time.Hour),
	}
}

// baselineHealth says who it is, which the Go client wants to know.
type baselineHealth struct {
	weirv1.UnimplementedRateLimiterHealthServer
}

func (baselineHealth) GetHealthStatus(context.Context, *weirv1.GetHealthStatusRequest) (*weirv1.GetHealthStatusResponse, error) {
	return &weirv1.GetHealthStatusResponse{NodeId: "baseline"}, nil
}

// envoyBaseline is the same for Envoy's API.
type envoyBaseline struct {
	rlsv3.UnimplementedRateLimitServiceServer
}

func (envoyBaseline) ShouldRateLimit(_ context.Context, req *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	statuses := make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(req.GetDescriptors()))
	for i := range statuses {
		statuses[i] = &rlsv3.RateLimitResponse_DescriptorStatus{
			Code: rlsv3.RateLimitResponse_OK, LimitRemaining: 999_999_999, DurationUntilReset: durationpb.New(40 * time.Hour),
			CurrentLimit: &rlsv3.RateLimitResponse_RateLimit{
				Name: "per-user", RequestsPerUnit: 1_000_000_000, Unit: rlsv3.RateLimitResponse_RateLimit_DAY,
			},
		}
	}
	return &rlsv3.RateLimitResponse{OverallCode: rlsv3.RateLimitResponse_OK, Statuses: statuses}, nil
}

// What a node sets otherwise than gRPC and Go do, as far as it saves processor time; see
// package node.
const (
	nodeStreamWorkers = 64
	nodeBallast       = 32 << 20 // bytes, never touched
)

// ServeBaseline answers checks on l until ctx ends, deciding nothing: the least that a server
// of these messages costs, with gRPC's and Go's defaults or with the settings of a node. It has TLS unless secured is nil.
func ServeBaseline(ctx context.Context, l net.Listener, likeNode bool, secured *tls.Config) error {
	var options []grpc.ServerOption
	if secured != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secured)))
	}
	if likeNode {
		options = append(options, grpc.NumStreamWorkers(nodeStreamWorkers))
		defer runtime.KeepAlive(make([]byte, nodeBallast))
	}
	s := grpc.NewServer(options...)
	weirv1.RegisterRateLimiterServer(s, baseline{})
	weirv1.RegisterRateLimiterHealthServer(s, baselineHealth{})
	rlsv3.RegisterRateLimitServiceServer(s, envoyBaseline{})
	defer context.AfterFunc(ctx, s.Stop)()
	return s.Serve(l)
}
