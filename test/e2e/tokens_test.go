package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// tokenPair is two nodes with TLS that share tokens by an etcd of their own.
type tokenPair struct {
	t     *testing.T
	p     process.Certificates
	etcd  *process.Etcd
	a, b  *process.Node
	conns map[string]*client.Node // by node and token
}

func startTokenPair(t *testing.T) *tokenPair {
	t.Helper()
	s := &tokenPair{t: t, p: process.NewCertificates(t), etcd: process.StartEtcd(t), conns: make(map[string]*client.Node)}
	s.a = s.p.Start("a", "--etcd", s.etcd.Endpoint)
	s.b = s.p.Start("b", "--etcd", s.etcd.Endpoint)
	process.AwaitMembers(t, process.Patience, s.a, s.b)
	return s
}

// create stores a token by node a, and returns its secret.
func (s *tokenPair) create(name, role string) string {
	s.t.Helper()
	args := append([]string{"tokens", "create", name, "--role", role, "--node", s.a.GRPC, "--timeout", "1m"}, s.p.Flags("client-admin")...)
	out, err := exec.CommandContext(s.t.Context(), process.Binary(s.t), args...).Output()
	if err != nil {
		s.t.Fatalf("weir %v: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// check asks a node with a token, on one connection for each of both.
func (s *tokenPair) check(n *process.Node, token string) error {
	s.t.Helper()
	c := s.conns[n.ID+token]
	if c == nil {
		var err error
		if c, err = client.NewNode(n.GRPC, client.WithTLS(s.p.Config("")), client.WithAccessToken(token)); err != nil {
			s.t.Fatal(err)
		}
		s.t.Cleanup(func() { _ = c.Close() })
		s.conns[n.ID+token] = c
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), tokenPatience)
	defer cancel()
	_, err := c.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
	return err
}

// A token that one node has stored is good on all nodes within a second, and on none a second after it was revoked, on a
// stream either.
func TestTokensOfTheCluster(t *testing.T) {
	s := startTokenPair(t)
	p, a, b, check := s.p, s.a, s.b, s.check
	checkout, stays := s.create("checkout", "check"), s.create("stays", "check:default")
	process.Await(t, tokenPatience, func() error { // the connections are made in this time too
		return errors.Join(check(a, checkout), check(b, checkout), check(b, stays))
	})
	if err := check(b, checkout+"x"); status.Code(err) != codes.Unauthenticated {
		t.Errorf("another token: %v", err)
	}
	for _, tc := range []struct{ cert, command, want string }{
		{"client-admin", "list", "checkout check\nstays check:default\n"},
		{"client-admin", "create checkout --role admin", "there is a token of this name"},
		{"client-admin", "revoke nothing", "there is no token of this name"},
		{"ca", "list", `needs the role "admin"`},
	} {
		out, _ := weirWith(t, p, tc.cert, append(append([]string{"tokens"}, strings.Fields(tc.command)...), "--node", b.GRPC)...)
		if !strings.Contains(out, tc.want) || strings.Contains(out, checkout) {
			t.Errorf("weir tokens %s with %s:\n%s", tc.command, tc.cert, out)
		}
	}
	if out, err := weirWith(t, p, "client-admin", "tokens", "revoke", "checkout", "--node", b.GRPC); err != nil {
		t.Fatalf("revoke: %v\n%s", err, out)
	}
	revoked := time.Now()
	for _, n := range []*process.Node{a, b} {
		awaitRefused(t, revoked, func() error { return check(n, checkout) })
	}
	out, err := weirWith(t, p, "client-admin", "audit", "--node", a.GRPC)
	for _, want := range []string{`Cluster.CreateAccessToken  "checkout check"  OK`, `Cluster.RevokeAccessToken  "checkout"  OK`, `Cluster.CreateAccessToken  "checkout admin"  AlreadyExists`} {
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, "weir_") {
			t.Errorf("weir audit: %v\n%s, want %q", err, out, want)
		}
	}
}

// While etcd is away a token stays good, on a node that is started again too. A token that was revoked stays revoked, and none
// can be made or revoked.
func TestTokensWithoutEtcd(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	s := startTokenPair(t)
	p, a, b, check := s.p, s.a, s.b, s.check
	checkout, stays := s.create("checkout", "check"), s.create("stays", "check:default")
	if out, err := weirWith(t, p, "client-admin", "tokens", "revoke", "checkout", "--node", b.GRPC); err != nil {
		t.Fatalf("revoke: %v\n%s", err, out)
	}
	process.Await(t, tokenPatience, func() error {
		for _, n := range []*process.Node{a, b} {
			if err := check(n, stays); err != nil {
				return err
			}
			if err := check(n, checkout); status.Code(err) != codes.Unauthenticated {
				return fmt.Errorf("%s, after it was revoked: %w", n.ID, cmp.Or(err, errors.New("a check was answered")))
			}
		}
		return nil
	})
	s.etcd.Kill()
	b.Signal(syscall.SIGTERM)
	if code := b.Wait(process.Patience); code != 0 {
		t.Fatalf("b ended with %d", code)
	}
	b.Restart()
	for _, n := range []*process.Node{a, b} {
		if err := check(n, stays); err != nil {
			t.Errorf("%s without etcd: %v", n.ID, err)
		}
		if err := check(n, checkout); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s without etcd, with a token that was revoked: %v", n.ID, err)
		}
	}
	if out, err := weirWith(t, p, "client-admin", "tokens", "revoke", "stays", "--timeout", "5s", "--node", a.GRPC); err == nil || !strings.Contains(out, "storing") && !strings.Contains(out, "reading") {
		t.Errorf("revoke without etcd: %v\n%s", err, out)
	}
	if text, err := os.ReadFile(p.File("tokens")); err == nil {
		t.Errorf("a file was written: %s", text)
	}
}
