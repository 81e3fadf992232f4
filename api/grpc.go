package api

import (
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Register registers the public services with a gRPC server.
func Register(r grpc.ServiceRegistrar, l *Limiter, c *ConfigServer, s Status) {
	weirv1.RegisterRateLimiterServer(r, rateLimiter{Limiter: l})
	weirv1.RegisterRateLimiterConfigServer(r, c)
	weirv1.RegisterRateLimiterHealthServer(r, healthServer{limiter: l, status: s})
	weirv1.RegisterClusterServer(r, clusterServer{status: s})
	rlsv3.RegisterRateLimitServiceServer(r, envoyServer{Limiter: l})
}
