package api

import (
	"slices"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/api/envoy"
	"github.com/weirlimit/weir/api/internal/wire"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Register registers the public services with a gRPC server, which must have been made
// with ServerOptions, and admits the calls that permits does.
func Register(server *grpc.Server, l *Limiter, c *ConfigServer, s Status, permits *Access) {
	r := Bounded(server)
	checks := weirv1.RateLimiter_ServiceDesc
	checks.Methods = slices.Clone(checks.Methods)
	for i, m := range checks.Methods { // checks themselves, which are replaced, are measured apart
		checks.Methods[i] = l.calls.method(&checks, m)
	}
	wire.ReplaceHandler(&checks, "CheckRateLimit", l.untilAnswered(l.check))
	wire.ReplaceHandler(&checks, "CheckRateLimitBatch", l.untilAnswered(l.checkBatch))
	r.RegisterService(&checks, rateLimiter{Limiter: l})
	l.envoy.Register(refusing{server})
	measured := measuredServer{r, l.calls}
	weirv1.RegisterRateLimiterConfigServer(measured, auditedConfig{c, l.audit})
	weirv1.RegisterRateLimiterHealthServer(measured, healthServer{limiter: l, status: s, port: permits.port()})
	weirv1.RegisterClusterServer(measured, clusterServer{status: s, rules: c.store, checks: l.checks, audit: l.audit, port: permits.port(), tokens: permits.store()})
}

// RegisterEnvoy registers Envoy's rate limit service alone.
func RegisterEnvoy(server *grpc.Server, l *Limiter) { l.envoy.Register(refusing{server}) }

// ServerOptions returns the options that a gRPC server needs for the services of Register.
func ServerOptions() []grpc.ServerOption {
	return wire.ServerOptions(envoy.MaxMessage, maxUnpacked, maxPacked, charge)
}
