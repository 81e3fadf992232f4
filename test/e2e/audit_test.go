package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

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
