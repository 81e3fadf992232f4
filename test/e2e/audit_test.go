package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// Rules and tokens that a node reads from its files while it runs are recorded, without a caller. What it starts with is not, nor a file that is refused.
func TestAuditOfFiles(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	rules, tokens := p.File("rules.yaml"), p.File("tokens")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	token := func(name string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), process.Binary(t), "tokens", "create", name, "--role", "check", "--file", tokens).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	write(rules, rulesPerYear(3))
	token("first")
	n := p.Start("a", "--rules", rules, "--tokens", tokens)
	audited := func(want ...string) {
		t.Helper()
		process.Await(t, process.Patience, func() error {
			out, err := weirWith(t, p, "client-admin", "audit", "--node", n.GRPC)
			if lines := strings.Count(out, "\n"); err != nil || lines != len(want) && out != "no changes\n" {
				return fmt.Errorf("%d entries, want %d: %w\n%s", lines, len(want), err, out)
			}
			for _, w := range want {
				if !strings.Contains(out, w) {
					return fmt.Errorf("%q is missing in\n%s", w, out)
				}
			}
			return nil
		})
	}
	audited()
	write(rules, rulesPerYear(4))
	ofRules, ofTokens := `  a  -  -  File.ReloadRules  "`+rules+`"  OK`, `  a  -  -  File.ReloadAccessTokens  "`+tokens+`"  OK`
	audited(ofRules)
	write(rules, "rules: nonsense")
	process.Await(t, process.Patience, func() error {
		if !strings.Contains(n.Log(), "rules refused, the last good ones stay") {
			return errors.New("not refused yet")
		}
		return nil
	})
	token("second")
	audited(ofRules, ofTokens)
}

// Changes are recorded in a file, and weir audit lists those of all nodes.
func TestAudit(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	p.Make("client", "asks", "--role", "check")
	etcd := process.StartEtcd(t)
	a := p.Start("a", "--etcd", etcd.Endpoint, "--audit-log", p.File("audit.log"))
	b := p.Start("b", "--etcd", etcd.Endpoint)
	for cert, node := range map[string]*process.Node{"client-admin": a, "client-asks": b} {
		_, _ = weirWith(t, p, cert, "reset", "user=alice", "--node", node.GRPC)
	}
	out, err := weirWith(t, p, "client-admin", "audit", "--node", b.GRPC)
	if err != nil {
		t.Fatalf("weir audit: %v\n%s", err, out)
	}
	for _, want := range []string{
		"  a  admin (certificate)  127.", `RateLimiterHealth.ResetRateLimit  "default user=alice"  OK`,
		"  b  asks (certificate)  127.", `RateLimiterHealth.ResetRateLimit  ""  PermissionDenied`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	if out, err := weirWith(t, p, "client-asks", "audit", "--node", b.GRPC); err == nil || !strings.Contains(out, `has not the role "admin"`) {
		t.Errorf("with the role check: %v\n%s", err, out)
	}
	text, err := os.ReadFile(p.File("audit.log"))
	if err != nil || strings.Count(string(text), "\n") != 1 || !strings.Contains(string(text), `"client":"admin","proof":"certificate"`) {
		t.Errorf("the file: %v\n%s", err, text)
	}
}
