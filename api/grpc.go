package api

import (
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Register registers the public services with a gRPC server, which must have been made
// with Codec.
func Register(r grpc.ServiceRegistrar, l *Limiter, c *ConfigServer, s Status) {
	checks := weirv1.RateLimiter_ServiceDesc
	replaceHandler(&checks, "CheckRateLimit", l.check)
	replaceHandler(&checks, "CheckRateLimitBatch", l.checkBatch)
	r.RegisterService(&checks, rateLimiter{Limiter: l})
	envoy := rlsv3.RateLimitService_ServiceDesc
	replaceHandler(&envoy, "ShouldRateLimit", l.checkEnvoy)
	r.RegisterService(&envoy, envoyServer{Limiter: l})
	weirv1.RegisterRateLimiterConfigServer(r, c)
	weirv1.RegisterRateLimiterHealthServer(r, healthServer{limiter: l, status: s})
	weirv1.RegisterClusterServer(r, clusterServer{status: s})
}
