package api

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/audit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Calls that change something are recorded, over gRPC and HTTP, with their caller and outcome. Others are not, nor are calls without a caller.
// TestEveryChangeIsRecorded has every method.
func TestChangesAreRecorded(t *testing.T) {
	var to bytes.Buffer
	f := newFixture(t, accessRules)
	f.audit = audit.New("here", &to)
	a, secrets := tokensOf(t, "check", "admin", "rules:shop")
	a.Audit = f.audit
	f.tap = a.Tap(f.Limiter.Tap)
	conn := f.dial(t)
	nodes, config, health := weirv1.NewClusterClient(conn), weirv1.NewRateLimiterConfigClient(conn), weirv1.NewRateLimiterHealthClient(conn)
	rule := func(domain, id string) *weirv1.RateLimit {
		return &weirv1.RateLimit{Domain: domain, Id: id, Rule: &weirv1.Rule{Unlimited: true}}
	}
	forged := "a\n{\"action\":\"forged\"}"
	for _, tc := range []struct {
		role string
		call func(context.Context) error
		want string // client, proof, action, target, outcome; empty: nothing is recorded
	}{
		{"admin", func(ctx context.Context) error {
			_, err := nodes.ListNodes(ctx, &weirv1.ListNodesRequest{})
			return err
		}, ""},
		{"admin", func(ctx context.Context) error {
			_, err := config.ApplyRules(ctx, &weirv1.ApplyRulesRequest{Rules: "domain: shop\n", DryRun: true})
			return err
		}, ""},
		{"admin", func(ctx context.Context) error {
			_, err := health.ResetRateLimit(ctx, &weirv1.ResetRateLimitRequest{Domain: "shop", IdentifierType: "user", Identifier: forged})
			return err
		}, "admin token RateLimiterHealth.ResetRateLimit shop user=" + forged + " OK"},
		{"check", func(ctx context.Context) error {
			_, err := nodes.DrainNode(ctx, &weirv1.DrainNodeRequest{NodeId: "a"})
			return err
		}, "check token Cluster.DrainNode  PermissionDenied"},
		{"admin", func(ctx context.Context) error {
			_, err := nodes.DrainNode(ctx, &weirv1.DrainNodeRequest{NodeId: "other", Cancel: true})
			return err
		}, "admin token Cluster.DrainNode other (cancel) InvalidArgument"},
		{"admin", func(ctx context.Context) error {
			_, err := nodes.RemoveNode(ctx, &weirv1.RemoveNodeRequest{})
			return err
		}, "admin token Cluster.RemoveNode  InvalidArgument"},
		{"rules:shop", func(ctx context.Context) error {
			_, err := config.CreateRateLimit(ctx, &weirv1.CreateRateLimitRequest{RateLimit: rule("bank", "x")})
			return err
		}, "rules-shop token RateLimiterConfig.CreateRateLimit bank/x PermissionDenied"},
		{"rules:shop", func(ctx context.Context) error {
			_, err := config.DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Domain: "bank", Id: "x"})
			return err
		}, "rules-shop token RateLimiterConfig.DeleteRateLimit bank/x PermissionDenied"},
		{"none", func(ctx context.Context) error {
			_, err := nodes.DrainNode(ctx, &weirv1.DrainNodeRequest{NodeId: "a"})
			return err
		}, ""}, // else strangers could fill the disk
	} {
		to.Reset()
		_ = tc.call(withToken(t.Context(), secrets[tc.role]))
		if tc.want == "" {
			if to.Len() > 0 {
				t.Errorf("recorded: %s", to.String())
			}
			continue
		}
		var e audit.Entry
		if err := json.Unmarshal(to.Bytes(), &e); err != nil || strings.Count(to.String(), "\n") != 1 {
			t.Errorf("%v: %q", err, to.String())
			continue
		}
		if got := strings.Join([]string{e.Client, e.Proof, e.Action, e.Target, e.Outcome}, " "); got != tc.want || e.Node != "here" || e.From == "" || e.Time.IsZero() {
			t.Errorf("%q of %+v, want %q", got, e, tc.want)
		}
		for _, secret := range secrets {
			if strings.Contains(to.String(), secret) {
				t.Errorf("a token is in %s", to.String())
			}
		}
	}
	f.access = a
	to.Reset()
	r := send(f.handler(t), "POST", "/v1/reset", `{"domain":"shop","identifier_type":"user","identifier":"a"}`)
	if r.Code != 401 || to.Len() > 0 {
		t.Errorf("%d, recorded %s", r.Code, to.String())
	}
	f.access = nil // as without TLS
	if r := send(f.handler(t), "POST", "/v1/reset", `{"domain":"shop","identifier_type":"user","identifier":"a"}`); r.Code != 200 || !strings.Contains(to.String(), `"client":"","proof":""`) {
		t.Errorf("%d, recorded %s", r.Code, to.String())
	}
	list, err := nodes.ListAudit(withToken(t.Context(), secrets["admin"]), &weirv1.ListAuditRequest{})
	if err != nil || len(list.GetEntries()) != 7 || list.GetEntries()[0].GetAction() != "RateLimiterHealth.ResetRateLimit" {
		t.Errorf("%v: %v", err, list)
	}
}
