package node

import (
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/status"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthWatches is the health of gRPC, with a bound of its watches. They last as long as their clients want, and nothing else bounds calls whose clients
// have ended their side.
type healthWatches struct {
	*health.Server
	underWay atomic.Int64
}

// Watch implements healthpb.HealthServer.
func (h *healthWatches) Watch(req *healthpb.HealthCheckRequest, stream healthpb.Health_WatchServer) error {
	defer h.underWay.Add(-1)
	if h.underWay.Add(1) > maxHealthWatches {
		return status.Errorf(codes.ResourceExhausted, "this node has %d watches of its health, which is the most", maxHealthWatches)
	}
	return h.Server.Watch(req, stream)
}
