package api

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/audit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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
