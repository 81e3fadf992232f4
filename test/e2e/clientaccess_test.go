package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/httplimit"
	"github.com/weirlimit/weir/test/process"
)

// tokenIn makes a token in a file of tokens.
func tokenIn(t *testing.T, file, name, role string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), process.Binary(t), "tokens", "create", name, "--role", role, "--file", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// clientOf returns a client of nodes, closed at the end of the test.
func clientOf(t *testing.T, nodes []*process.Node, options ...client.Option) *client.Client {
	t.Helper()
	for _, n := range nodes[1:] {
		options = append(options, client.WithSeeds(n.GRPC))
	}
	c, err := client.New(nodes[0].GRPC, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A check of the Go client whose certificate or token all nodes refuse is an error that says so, also if the client fails
// closed. It is never allowed undecided. A middleware answers with 500.
func TestClientThatAllNodesRefuse(t *testing.T) {
	t.Parallel()
	p, others := process.NewCertificates(t), process.NewCertificates(t)
	p.Make("client", "scrapes", "--role", "metrics")
	etcd := process.StartEtcd(t)
	tokens := p.File("tokens")
	tokenIn(t, tokens, "other", "check")
	nodes := []*process.Node{
		p.Start("a", "--etcd", etcd.Endpoint, "--tokens", tokens, "--rules", writeRules(t, lastingRule)),
		p.Start("b", "--etcd", etcd.Endpoint, "--tokens", tokens, "--rules", writeRules(t, lastingRule)),
	}
	foreign := p.Config("")
	foreign.Certificates = others.Config("client-admin").Certificates
	withToken := func(token string) []client.Option {
		return []client.Option{client.WithTLS(p.Config("")), client.WithAccessToken(token)}
	}
	for name, tc := range map[string]struct {
		options []client.Option
		want    string // in the error
		code    codes.Code
	}{
		"neither a certificate nor a token": {[]client.Option{client.WithTLS(p.Config(""))}, "neither a certificate of a client nor a token", codes.Unauthenticated},
		"a token that is not known":         {withToken("weir_unknown"), "token", codes.Unauthenticated},
		"a certificate without the role":    {[]client.Option{client.WithTLS(p.Config("client-scrapes"))}, `has not the role "check"`, codes.PermissionDenied},
		"a certificate of another CA":       {[]client.Option{client.WithTLS(foreign)}, "refuses this client's certificate", codes.Unknown},
		"nodes of another CA":               {[]client.Option{client.WithTLS(others.Config("client-admin"))}, "is not valid", codes.Unknown},
		"failing closed":                    {append(withToken("weir_unknown"), client.WithFailClosed()), "token", codes.Unauthenticated},
		"leases":                            {append(withToken("weir_unknown"), client.WithLeases()), "token", codes.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, nodes, append(tc.options, client.WithTimeout(2*time.Second))...)
			for range 20 {
				answer, err := c.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
				var refused *client.AccessError
				if !errors.As(err, &refused) || status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("%v, %v, want an error with %q", answer, err, tc.want)
				}
			}
			if s := c.Stats(); s.Undecided != 0 || s.Nodes[0].Problem == nil || !strings.Contains(s.Nodes[0].Problem.Error(), tc.want) {
				t.Errorf("%+v", s)
			}
			var told error
			limit, err := httplimit.New(c, httplimit.WithTimeout(2*time.Second), httplimit.OnError(func(_ *http.Request, err error) { told = err }))
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			limit(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if w.Code != http.StatusInternalServerError || told == nil || !strings.Contains(told.Error(), tc.want) || strings.Contains(w.Body.String(), nodes[0].GRPC) {
				t.Errorf("the middleware: %d %s, told %v", w.Code, w.Body, told)
			}
		})
	}
}

// The answers of nodes that accept a client count, if one of the others refuses it.
func TestClientThatOneNodeRefuses(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	etcd := process.StartEtcd(t)
	tokens := p.File("tokens")
	token := tokenIn(t, tokens, "checkout", "check")
	rules := writeRules(t, lastingRule)
	nodes := []*process.Node{
		p.Start("a", "--etcd", etcd.Endpoint, "--rules", rules),
		p.Start("b", "--etcd", etcd.Endpoint, "--rules", rules, "--tokens", tokens),
	}
	process.AwaitSettled(t, process.Patience, nodes...) // then a late owner has a standby
	c := clientOf(t, nodes, client.WithTLS(p.Config("")), client.WithAccessToken(token), client.WithTimeout(2*time.Second))
	for range 50 {
		answer, err := c.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
		if err != nil || client.Undecided(answer) {
			t.Fatalf("%v, %v", answer, err)
		}
	}
	nodes[1].Kill()
	// A node that does not respond has not refused anything.
	process.Await(t, process.Patience, func() error {
		answer, err := c.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
		if err != nil || !client.Undecided(answer) {
			return fmt.Errorf("one node refuses and one is dead: %v, %w", answer, err)
		}
		return nil
	})
}

// Checks in a domain that the client has the role for are answered, while those in another one, which travel in the same
// messages, are refused.
func TestClientWithRoleForOneDomain(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	p.Make("client", "shop", "--role", "check:shop")
	n := p.Start("a", "--rules", writeRules(t, strings.Replace(lastingRule, "default", "shop", 1)))
	c := clientOf(t, []*process.Node{n}, client.WithTLS(p.Config("client-shop")), client.WithTimeout(5*time.Second))
	var all sync.WaitGroup
	for caller := range 20 {
		all.Go(func() {
			domain := []string{"shop", "default"}[caller%2]
			for range 50 {
				answer, err := c.Check(t.Context(), &weirv1.RateLimitRequest{Domain: domain, IdentifierType: "user", Identifier: "alice"})
				var refused *client.AccessError
				switch {
				case domain == "shop" && (err != nil || client.Undecided(answer)):
					t.Errorf("with the role: %v, %v", answer, err)
				case domain == "default" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), `has not the role "check" in domain "default"`)):
					t.Errorf("without the role: %v, %v", answer, err)
				}
			}
		})
	}
	all.Wait()
}

// Checks under way when the token is revoked are answered or refused. None is allowed undecided.
func TestClientWhoseTokenIsRevoked(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	tokens := p.File("tokens")
	token := tokenIn(t, tokens, "checkout", "check")
	n := p.Start("a", "--tokens", tokens, "--rules", writeRules(t, lastingRule))
	c := clientOf(t, []*process.Node{n}, client.WithTLS(p.Config("")), client.WithAccessToken(token), client.WithTimeout(5*time.Second))
	ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
	defer cancel()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				answer, err := c.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
				var refused *client.AccessError
				if errors.As(err, &refused) {
					return
				}
				if err != nil || client.Undecided(answer) {
					t.Errorf("%v, %v", answer, err)
					return
				}
			}
		})
	}
	if out, err := exec.CommandContext(t.Context(), process.Binary(t), "tokens", "revoke", "checkout", "--file", tokens).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	all.Wait()
}
