package bench

import (
	"context"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// envoyConn asks as Envoy does: Weir, envoyproxy/ratelimit, or another server of that API.
type envoyConn struct {
	service  rlsv3.RateLimitServiceClient
	requests *Requests
}

func newEnvoyConn(conn grpc.ClientConnInterface, r *Requests) envoyConn {
	return envoyConn{rlsv3.NewRateLimitServiceClient(conn), r}
}

// Ask implements Conn.
func (c envoyConn) Ask(ctx context.Context, keys []uint64) (Answers, error) {
	resp, err := c.service.ShouldRateLimit(ctx, c.requests.envoy(keys))
	if err != nil {
		return Answers{}, err
	}
	if got := len(resp.GetStatuses()); got != len(keys) {
		return Answers{}, wrongNumber(got, len(keys))
	}
	var sum Answers
	for _, s := range resp.GetStatuses() {
		if s.GetCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
			sum.Denied++
		} else {
			sum.Allowed++
			if s.GetCurrentLimit() == nil {
				sum.NoRule++
			}
		}
	}
	return sum, nil
}

func (c envoyConn) look(ctx context.Context) error {
	request := c.requests.envoy([]uint64{0})
	request.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	_, err := c.service.ShouldRateLimit(ctx, request)
	return err
}

// envoy returns a request with one descriptor per key.
func (r *Requests) envoy(keys []uint64) *rlsv3.RateLimitRequest {
	request := &rlsv3.RateLimitRequest{
		Domain: r.domain(), HitsAddend: uint32(r.Cost), Descriptors: make([]*commonv3.RateLimitDescriptor, len(keys)),
	}
	for i, key := range keys {
		entries := make([]*commonv3.RateLimitDescriptor_Entry, len(r.Attributes))
		for j, a := range r.Attributes {
			if j == r.identifier {
				a.Value = r.name(key)
			}
			entries[j] = &commonv3.RateLimitDescriptor_Entry{Key: a.Key, Value: a.Value}
		}
		request.Descriptors[i] = &commonv3.RateLimitDescriptor{Entries: entries}
	}
	return request
}
