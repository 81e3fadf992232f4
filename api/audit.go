package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/audit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
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

// auditedDenial records that a known caller was denied a call that changes something.
func (a *Access) auditedDenial(ctx context.Context, n need, p *access.Principal, call string, err error) {
	if d, ok := errors.AsType[*access.Denial](err); !n.changes || p == nil || !ok || !d.Known {
		return
	}
	call = strings.TrimPrefix(call, "/weir.v1.")
	auditedCall(access.With(ctx, p), a.Audit, strings.ReplaceAll(call, "/", "."), "", access.StatusOf(err))
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

// auditedConfig is a ConfigServer whose changes are recorded.
type auditedConfig struct {
	*ConfigServer
	log *audit.Log
}

func nameOfRule(domain, id string) string { return cmp.Or(domain, DefaultDomain) + "/" + id }

// CreateRateLimit implements weirv1.RateLimiterConfigServer.
func (s auditedConfig) CreateRateLimit(ctx context.Context, req *weirv1.CreateRateLimitRequest) (*weirv1.RateLimit, error) {
	resp, err := s.ConfigServer.CreateRateLimit(ctx, req)
	auditedCall(ctx, s.log, "RateLimiterConfig.CreateRateLimit", nameOfRule(req.GetRateLimit().GetDomain(), req.GetRateLimit().GetId()), err)
	return resp, err
}

// UpdateRateLimit implements weirv1.RateLimiterConfigServer.
func (s auditedConfig) UpdateRateLimit(ctx context.Context, req *weirv1.UpdateRateLimitRequest) (*weirv1.RateLimit, error) {
	resp, err := s.ConfigServer.UpdateRateLimit(ctx, req)
	auditedCall(ctx, s.log, "RateLimiterConfig.UpdateRateLimit", nameOfRule(req.GetRateLimit().GetDomain(), req.GetRateLimit().GetId()), err)
	return resp, err
}

// DeleteRateLimit implements weirv1.RateLimiterConfigServer.
func (s auditedConfig) DeleteRateLimit(ctx context.Context, req *weirv1.DeleteRateLimitRequest) (*weirv1.DeleteRateLimitResponse, error) {
	resp, err := s.ConfigServer.DeleteRateLimit(ctx, req)
	auditedCall(ctx, s.log, "RateLimiterConfig.DeleteRateLimit", nameOfRule(req.GetDomain(), req.GetId()), err)
	return resp, err
}

// ApplyRules implements weirv1.RateLimiterConfigServer. A dry run changes nothing, and is not recorded.
func (s auditedConfig) ApplyRules(ctx context.Context, req *weirv1.ApplyRulesRequest) (*weirv1.ApplyRulesResponse, error) {
	resp, err := s.ConfigServer.ApplyRules(ctx, req)
	if !req.GetDryRun() {
		auditedCall(ctx, s.log, "RateLimiterConfig.ApplyRules", describeApply(req, resp), err)
	}
	return resp, err
}

// describeApply returns the name of the file, and the rules that have changed.
func describeApply(req *weirv1.ApplyRulesRequest, resp *weirv1.ApplyRulesResponse) string {
	text := cmp.Or(req.GetName(), "rules")
	for _, c := range resp.GetChanges() {
		text += fmt.Sprintf(" %s/%s", c.GetDomain(), c.GetId())
		if len(text) > maxEcho {
			break
		}
	}
	return text
}

// ResetRateLimit implements weirv1.RateLimiterHealthServer.
func (s healthServer) ResetRateLimit(ctx context.Context, req *weirv1.ResetRateLimitRequest) (*weirv1.ResetRateLimitResponse, error) {
	resp, err := s.limiter.Reset(ctx, req)
	target := strings.TrimRight(fmt.Sprintf("%s %s=%s %s", cmp.Or(req.GetDomain(), DefaultDomain), req.GetIdentifierType(), req.GetIdentifier(), req.GetRuleId()), " ")
	auditedCall(ctx, s.limiter.audit, "RateLimiterHealth.ResetRateLimit", target, err)
	return resp, err
}

// ResetDescriptors implements weirv1.RateLimiterHealthServer.
func (s healthServer) ResetDescriptors(ctx context.Context, req *weirv1.DescriptorsRequest) (*weirv1.ResetRateLimitResponse, error) {
	resp, err := s.resetDescriptors(ctx, req)
	target := cmp.Or(req.GetDomain(), DefaultDomain)
	for _, d := range req.GetDescriptors() {
		for _, e := range d.GetEntries() {
			if len(target) < maxEcho {
				target += fmt.Sprintf(" %s=%s", e.GetKey(), e.GetValue())
			}
		}
	}
	auditedCall(ctx, s.limiter.audit, "RateLimiterHealth.ResetDescriptors", target, err)
	return resp, err
}

// DrainNode implements weirv1.ClusterServer.
func (s clusterServer) DrainNode(ctx context.Context, req *weirv1.DrainNodeRequest) (*weirv1.DrainNodeResponse, error) {
	resp, err := s.drainNode(req)
	target := req.GetNodeId()
	if req.GetCancel() {
		target += " (cancel)"
	}
	auditedCall(ctx, s.audit, "Cluster.DrainNode", target, err)
	return resp, err
}

// RemoveNode implements weirv1.ClusterServer.
func (s clusterServer) RemoveNode(ctx context.Context, req *weirv1.RemoveNodeRequest) (*weirv1.RemoveNodeResponse, error) {
	resp, err := s.removeNode(ctx, req)
	auditedCall(ctx, s.audit, "Cluster.RemoveNode", req.GetNodeId(), err)
	return resp, err
}

// ImportView implements weirv1.ClusterServer. A dry run changes nothing, and is not recorded.
func (s clusterServer) ImportView(ctx context.Context, req *weirv1.ImportViewRequest) (*weirv1.ImportViewResponse, error) {
	resp, err := s.importView(ctx, req)
	if !req.GetDryRun() {
		auditedCall(ctx, s.audit, "Cluster.ImportView", "", err)
	}
	return resp, err
}

// ListAudit implements weirv1.ClusterServer.
func (s clusterServer) ListAudit(context.Context, *weirv1.ListAuditRequest) (*weirv1.ListAuditResponse, error) {
	if s.audit == nil {
		return nil, status.Error(codes.Unimplemented, "this server has no audit log")
	}
	resp := &weirv1.ListAuditResponse{}
	size := 0
	entries := s.audit.Entries()
	for i := len(entries) - 1; i >= 0; i-- { // the newest are wanted most
		e := entries[i]
		if size += len(audit.Line(e)); size > MaxMessage {
			break
		}
		resp.Entries = append(resp.Entries, &weirv1.AuditEntry{
			Time: e.Time.UnixNano(), Node: e.Node, Client: e.Client, Proof: e.Proof, From: e.From,
			Action: e.Action, Target: e.Target, Outcome: e.Outcome, Reason: e.Reason,
		})
	}
	slices.Reverse(resp.Entries)
	return resp, nil
}
