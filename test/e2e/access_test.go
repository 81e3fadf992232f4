package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// With TLS and nothing else configured, checks need a certificate, and changes one with the role for them.
func TestRolesOfCertificates(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	p := process.NewCertificates(t)
	for name, role := range map[string]string{"asks": "check", "writes": "rules:shop", "scrapes": "metrics"} {
		p.Make("client", name, "--role", role)
	}
	n := p.Start("a")
	rules := writeRules(t, "domain: shop\nrules:\n  - {id: year, per: [user], limits: [{limit: 30, window: 365d}]}\n")
	others := writeRules(t, lastingRule)
	for _, tc := range []struct {
		cert, command string
		want          string // in the output; empty if the command works
	}{
		{"client-writes", "rules apply -f " + rules, ""},
		{"client-writes", "rules apply -f " + others, `client "writes", known by its certificate, has not the role "rules" in domain "default"`},
		{"client-asks", "rules apply -f " + rules, `has not the role "rules"`},
		{"client-asks", "check user=alice", ""},
		{"client-asks", "check user=alice --domain shop", ""},
		{"client-writes", "check user=alice --domain shop", ""},
		{"client-writes", "check user=alice", `has not the role "check" in domain "default"`},
		{"client-scrapes", "check user=alice", `has not the role "check"`},
		{"node-b", "check user=alice", `has not the role "check"`},
		{"client-asks", "drain a", `has not the role "admin"`},
		{"client-asks", "reset user=alice --domain shop", `has not the role "admin"`},
		{"client-asks", "nodes", ""},
		{"ca", "check user=alice", `needs the role "check"`},
		{"client-admin", "reset user=alice --domain shop", ""},
		{"client-admin", "drain a", "no other node is ready"}, // it was permitted
	} {
		out, err := weirWith(t, p, tc.cert, append(strings.Fields(tc.command), "--node", n.GRPC)...)
		if (err == nil) != (tc.want == "") || !strings.Contains(out, tc.want) {
			t.Errorf("%s with %s: %v\n%s, want %q", tc.command, tc.cert, err, out, tc.want)
		}
	}
}

// Without TLS, on loopback, everything is permitted.
func TestLoopbackIsOpen(t *testing.T) {
	t.Parallel()
	n := process.How{}.Start(t, "--rules", writeRules(t, lastingRule))
	var p process.Certificates
	for _, command := range []string{"check user=alice", "rules list", "reset user=alice", "ring", "drain --cancel " + n.ID} {
		if out, err := weirWith(t, p, "", append(strings.Fields(command), "--node", n.GRPC)...); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
}

// tokenPatience is what a check with a token may take, the connection included.
const tokenPatience = process.Patience

// awaitRefused fails the test unless checks with a token that was revoked at a time are refused: all that are sent a second later.
func awaitRefused(t *testing.T, revoked time.Time, check func() error) {
	t.Helper()
	for {
		sent := time.Since(revoked)
		err := check()
		if status.Code(err) == codes.Unauthenticated {
			return
		}
		if sent > time.Second {
			t.Fatalf("%v after it was revoked: %v", sent, cmp.Or(err, errors.New("a check was answered")))
		}
	}
}

// A token of the file permits what its roles do, on all nodes that have the file, and within a second of its
// removal from the file it permits nothing.
func TestTokens(t *testing.T) {
	p := process.NewCertificates(t)
	file := p.File("tokens")
	token := func(args ...string) string {
		args = append(append([]string{"tokens"}, args...), "--file", file)
		out, err := exec.CommandContext(t.Context(), process.Binary(t), args...).Output()
		if err != nil {
			t.Fatalf("weir %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	checks := token("create", "checkout", "--role", "check")
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Fatal(info.Mode(), err)
	}
	etcd := process.StartEtcd(t)
	a := p.Start("a", "--etcd", etcd.Endpoint, "--tokens", file)
	b := p.Start("b", "--etcd", etcd.Endpoint, "--tokens", file)
	dial := func(n *process.Node, token string) *client.Node {
		c, err := client.NewNode(n.GRPC, client.WithTLS(p.Config("")), client.WithAccessToken(token))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	check := func(c *client.Node) error {
		ctx, cancel := context.WithTimeout(t.Context(), tokenPatience)
		defer cancel()
		_, err := c.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
		return err
	}
	for _, n := range []*process.Node{a, b} {
		if err := check(dial(n, checks)); err != nil {
			t.Errorf("%s: %v", n.ID, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), tokenPatience)
	defer cancel()
	if _, err := dial(b, checks).DrainNode(ctx, b.ID, false); status.Code(err) != codes.PermissionDenied {
		t.Errorf("drain with the role check: %v", err)
	}
	onB := dial(b, checks)
	if err := check(onB); err != nil {
		t.Fatal(err)
	}
	token("revoke", "checkout")
	awaitRefused(t, time.Now(), func() error { return check(onB) })
	ops := token("create", "ops", "--role", "admin")
	if err := os.WriteFile(p.File("ops.token"), []byte(ops+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	process.Await(t, process.Patience, func() error {
		if out, err := weirWith(t, p, "ca", "ring", "--node", a.GRPC, "--token-file", p.File("ops.token")); err != nil {
			return fmt.Errorf("weir ring: %w\n%s", err, out)
		}
		return nil
	})
	if out, err := weirWith(t, p, "", "ring", "--node", a.GRPC, "--token-file", p.File("ops.token")); err == nil || !strings.Contains(out, "a token is not sent unencrypted") {
		t.Errorf("without TLS: %v\n%s", err, out)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), ops) || token("list") != "ops admin" {
		t.Errorf("the file: %v\n%s", err, text)
	}
}
