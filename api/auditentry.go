package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/audit"
)

// auditedCall records the call of a method that changes something, which has ended with err.
func auditedCall(ctx context.Context, log *audit.Log, action, target string, err error) {
	st := status.Convert(err)
	e := audit.Entry{Time: time.Now(), Action: action, Target: target, From: remoteOf(ctx), Outcome: st.Code().String(), Reason: st.Message()}
	if p := access.From(ctx); p != nil {
		e.Client, e.Proof = p.Name(), string(p.Proof())
	}
	log.Record(e)
}

// auditedDenial records that a known caller was denied a call that changes something: a gRPC method as auditedCall names it, or the pattern of
// a path over HTTP.
func (a *Access) auditedDenial(ctx context.Context, n need, p *access.Principal, call string, err error) {
	if d, ok := errors.AsType[*access.Denial](err); !n.changes || p == nil || !ok || !d.Known {
		return
	}
	if isMethod(call) {
		call = strings.ReplaceAll(strings.TrimPrefix(call, "/weir.v1."), "/", ".")
	}
	auditedCall(access.With(ctx, p), a.Audit, call, "", access.StatusOf(err))
}

// remoteOf returns the address that a call came from, empty if it is of this process.
func remoteOf(ctx context.Context) string {
	if c, ok := ctx.Value(connCallerKey{}).(*connCaller); ok {
		return c.remote
	}
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
