package bench

import (
	"context"
	"fmt"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// users are the identifiers that are asked about, uniformly.
const users = 100_000

const batchSize = 100

// caller asks one thing after the other. The function that it returns is called
// once in the end.
type caller func(clients []conn, number int) (ask func(i int) error, end func() error, err error)

// calls is a caller that asks the servers in turn, by a call each time.
func calls(call func(c conn, i int) error) caller {
	return func(clients []conn, _ int) (ask func(int) error, end func() error, err error) {
		return func(i int) error { return call(clients[i%len(clients)], i) }, func() error { return nil }, nil
	}
}

func user(i int) string { return fmt.Sprintf("user-%06d", i%users) }

func request(i int) *weirv1.RateLimitRequest {
	return &weirv1.RateLimitRequest{Identifier: user(i), IdentifierType: "user", Endpoint: "/api/v1/posts"}
}

func unary(c conn, i int) error {
	resp, err := c.weir.CheckRateLimit(context.Background(), request(i))
	if err == nil && (!resp.GetAllowed() || resp.GetSource() != weirv1.Source_SOURCE_OWNER) {
		err = fmt.Errorf("unexpected answer %v", resp)
	}
	return err
}

// requests returns those of the i-th batch.
func requests(i int) []*weirv1.RateLimitRequest {
	all := make([]*weirv1.RateLimitRequest, batchSize)
	for j := range all {
		all[j] = request(i*batchSize + j)
	}
	return all
}

func batch(c conn, i int) error {
	resp, err := c.weir.CheckRateLimitBatch(context.Background(), &weirv1.RateLimitBatchRequest{Requests: requests(i)})
	if err == nil && len(resp.GetResponses()) != batchSize {
		err = fmt.Errorf("%d answers", len(resp.GetResponses()))
	}
	return err
}

// envoy asks about the same users by Envoy's API.
func envoy(c conn, i int) error {
	req := &rlsv3.RateLimitRequest{Domain: "default", Descriptors: make([]*commonv3.RateLimitDescriptor, batchSize)}
	for j := range req.Descriptors {
		req.Descriptors[j] = &commonv3.RateLimitDescriptor{Entries: []*commonv3.RateLimitDescriptor_Entry{
			{Key: "user", Value: user(i*batchSize + j)}, {Key: "endpoint", Value: "/api/v1/posts"},
		}}
	}
	resp, err := c.envoy.ShouldRateLimit(context.Background(), req)
	if err == nil && (resp.GetOverallCode() != rlsv3.RateLimitResponse_OK || len(resp.GetStatuses()) != batchSize) {
		err = fmt.Errorf("unexpected answer %v", resp)
	}
	return err
}

const (
	streamCallers = 6 // streams, per node
	window        = 8 // messages of a stream under way
)

// stream is a caller that keeps a window full on a stream to one server.
func stream(clients []conn, number int) (ask func(int) error, end func() error, err error) {
	s, err := clients[number%len(clients)].weir.StreamRateLimits(context.Background())
	if err != nil {
		return nil, nil, err
	}
	underWay := 0
	receive := func() error {
		underWay--
		resp, err := s.Recv()
		if err == nil && (len(resp.GetResponses()) != batchSize || resp.GetResponses()[0].GetSource() != weirv1.Source_SOURCE_OWNER) {
			err = fmt.Errorf("unexpected answer %v", resp)
		}
		return err
	}
	ask = func(i int) error {
		if underWay == window {
			if err := receive(); err != nil {
				return err
			}
		}
		underWay++
		return s.Send(&weirv1.StreamRateLimitsRequest{Id: uint64(i), Requests: requests(i)})
	}
	end = func() error {
		err := s.CloseSend()
		for err == nil && underWay > 0 {
			err = receive()
		}
		return err
	}
	return ask, end, nil
}
