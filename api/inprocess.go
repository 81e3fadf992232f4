package api

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/access"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// inProcess calls the services of a node as callers over gRPC do: with the permissions of the context's caller, the audit log
// and the bounds of each call.
type inProcess struct {
	permits *Access
	methods map[string]method
}

type method struct {
	service any
	desc    grpc.MethodDesc
}

// InProcess returns a connection to the public services of this process, for unary calls. A call needs the role that needs has for it, as
// over the network: its caller is that of the request that Protect has passed on, from whose context the call's must be. The
// port does not matter, as the request came in at one already.
func InProcess(l *Limiter, c *ConfigServer, s Status, permits *Access) grpc.ClientConnInterface {
	p := inProcess{permits: permits, methods: make(map[string]method)}
	add := func(desc *grpc.ServiceDesc, service any) {
		for _, m := range desc.Methods {
			p.methods["/"+desc.ServiceName+"/"+m.MethodName] = method{service, m}
		}
	}
	add(&weirv1.RateLimiter_ServiceDesc, l.Server())
	add(&weirv1.RateLimiterConfig_ServiceDesc, auditedConfig{c, l.audit})
	add(&weirv1.RateLimiterHealth_ServiceDesc, healthServer{limiter: l, status: s, port: permits.port()})
	add(&weirv1.Cluster_ServiceDesc, clusterServer{status: s, rules: c.store, checks: l.checks, audit: l.audit, port: permits.port(), tokens: permits.store()})
	return p
}

// Invoke implements grpc.ClientConnInterface.
func (p inProcess) Invoke(ctx context.Context, name string, args, reply any, _ ...grpc.CallOption) error {
	m, known := p.methods[name]
	if !known {
		return status.Errorf(codes.Unimplemented, "no method %s", name)
	}
	if err := p.permits.mayCall(ctx, name); err != nil {
		return err
	}
	decode := func(to any) error {
		proto.Merge(to.(proto.Message), args.(proto.Message))
		return nil
	}
	answer, err := m.desc.Handler(m.service, ctx, decode, nil)
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), answer.(proto.Message))
	return nil
}

// NewStream implements grpc.ClientConnInterface.
func (inProcess) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "calls within a node are unary")
}

// mayCall refuses a call to a caller without the role for it. A restricted node refuses callers that it does not know.
func (a *Access) mayCall(ctx context.Context, call string) error {
	if a == nil || a.Tokens == nil {
		return nil
	}
	n, p := neededBy(call), access.From(ctx)
	if p == nil {
		return status.Error(codes.Unauthenticated, fmt.Sprintf("%s: the caller is not known", call))
	}
	err := p.Has(n.role)
	if err != nil {
		a.auditedDenial(ctx, n, p, call, err)
	}
	return access.StatusOf(err)
}
