package e2e

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// With --admin, metrics, drains, resets, changes of rules and the audit log are at the admin port only, and checks at the
// others. The commands find the admin ports of other nodes by one of them.
func TestAdminPort(t *testing.T) {
	t.Parallel()
	p := process.NewCertificates(t)
	p.Make("client", "asks", "--role", "check")
	etcd, free := process.StartEtcd(t), net.JoinHostPort(process.Host(t), "0")
	a := p.Start("a", "--etcd", etcd.Endpoint, "--admin", free)
	b := p.Start("b", "--etcd", etcd.Endpoint, "--admin", free)
	process.AwaitMembers(t, process.Patience, a, b)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: p.Config("client-admin"), ForceAttemptHTTP2: true}}
	for address, want := range map[string]int{a.HTTP: http.StatusNotFound, a.Admin: http.StatusOK} {
		resp, err := web.Get("https://" + address + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("https://%s/metrics: %s, want %d", address, resp.Status, want)
		}
	}
	const elsewhere = "not served at this port: this node has an admin port (--admin)"
	rules := writeRules(t, lastingRule)
	for _, tc := range []struct {
		cert, command, node string
		want                string // in the output; empty if the command works
	}{
		{"client-admin", "rules apply -f " + rules, a.GRPC, elsewhere},
		{"client-admin", "rules apply -f " + rules, a.Admin, ""},
		{"client-admin", "rules list", a.GRPC, ""},
		{"client-asks", "check user=alice", b.GRPC, ""},
		{"client-asks", "check user=alice", b.Admin, "not served at the admin port"},
		{"client-asks", "nodes", b.Admin, ""},
		{"client-admin", "reset user=alice", b.GRPC, elsewhere},
		{"client-asks", "reset user=alice", b.Admin, `has not the role "admin"`},
		{"client-admin", "reset user=alice", b.Admin, ""},
		{"ca", "nodes", b.Admin, `needs the role "check"`},
		{"client-admin", "drain b", a.GRPC, elsewhere},
		{"client-admin", "drain b", a.Admin, ""},
		{"client-admin", "audit", a.GRPC, elsewhere},
	} {
		out, err := weirWith(t, p, tc.cert, append(strings.Fields(tc.command), "--node", tc.node)...)
		if (err == nil) != (tc.want == "") || !strings.Contains(out, tc.want) {
			t.Errorf("%s with %s at %s: %v\n%s, want %q", tc.command, tc.cert, tc.node, err, out, tc.want)
		}
		if tc.node == a.GRPC && (strings.Contains(out, a.Admin) || strings.Contains(out, b.Admin)) {
			t.Errorf("%s at %s: the answer has the address of an admin port\n%s", tc.command, tc.node, out)
		}
	}
	out, err := weirWith(t, p, "client-admin", "audit", "--node", b.Admin)
	if err != nil {
		t.Fatalf("weir audit: %v\n%s", err, out)
	}
	for _, want := range []string{
		"  a  admin (certificate)  127.", "RateLimiterConfig.ApplyRules", "  b  admin (certificate)  127.", `Cluster.DrainNode  "b"  OK`,
		`  b  asks (certificate)  127.`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// Without TLS, on loopback, the admin port keeps changes from the others.
func TestAdminPortWithoutTLS(t *testing.T) {
	t.Parallel()
	n := process.Start(t, "--admin", "127.0.0.1:0", "--rules", writeRules(t, lastingRule))
	for address, want := range map[string]int{n.HTTP: http.StatusNotFound, n.Admin: http.StatusOK} {
		for _, path := range []string{"/metrics", "/debug/pprof/"} {
			resp, err := http.Get("http://" + address + path)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("http://%s%s: %s, want %d", address, path, resp.Status, want)
			}
		}
	}
	var p process.Certificates
	for _, command := range []string{"reset user=alice", "ring", "drain --cancel " + n.ID} {
		for address, want := range map[string]string{n.GRPC: "--admin", n.Admin: ""} {
			out, err := weirWith(t, p, "", append(strings.Fields(command), "--node", address)...)
			if (err == nil) != (want == "") || !strings.Contains(out, want) {
				t.Errorf("%s at %s: %v\n%s", command, address, err, out)
			}
		}
	}
	if out, err := weirWith(t, p, "", "check", "user=alice", "--node", n.GRPC); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
}
