package api

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/audit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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
