package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/access"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// TokenCookie is the name of the cookie in which browsers show a token to the dashboard, and only to it.
const TokenCookie = "__Secure-weir"

// Dashboard are the pages at /ui/.
type Dashboard interface {
	http.Handler
	// Refuse answers a request whose caller may not make it. Known says that the caller has proven its name, which CallerName
	// then returns.
	Refuse(w http.ResponseWriter, r *http.Request, known bool, reason string)
}

// backtestPattern is the one of the dashboard to which logs are sent.
const backtestPattern = "POST /ui/backtest"

// isUI reports whether a pattern of needs is one of the dashboard.
func isUI(pattern string) bool { return strings.Contains(pattern, " /ui") }

// authorizationOfCookie returns what stands for the header field of that name in requests of browsers. The cookie is left over, and
// counts for nothing, if its token is not in force and the connection has a certificate, which proves its caller by itself.
func (a *Access) authorizationOfCookie(r *http.Request) []string {
	c, err := r.Cookie(TokenCookie)
	if err != nil || c.Value == "" || a.certificate(r) != nil && a.CheckToken(c.Value) != nil {
		return nil
	}
	return []string{"Bearer " + c.Value}
}

// CheckToken returns an error unless the token is in force. It is for a form in which people sign in.
func (a *Access) CheckToken(token string) error {
	if a == nil || a.Tokens == nil {
		return &access.Denial{Reason: "this node has no TLS, and no tokens"}
	}
	_, err := a.Tokens.Caller(nil, []string{"Bearer " + token})
	return err
}

// CallerName returns the name of the caller of a request that Protect has passed on or had refused, and how it is known. Both are empty
// without TLS, and for callers that are not known.
func CallerName(ctx context.Context) (name, proof string) {
	if p := access.From(ctx); p != nil {
		return p.Name(), string(p.Proof())
	}
	return "", ""
}

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
