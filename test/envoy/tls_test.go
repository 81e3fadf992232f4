package envoy

import (
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// plainWeir is the beginning of the cluster of nodes in envoy.yaml, into which the page has its block on TLS pasted.
const plainWeir = "    - name: weir\n      type: STRICT_DNS\n"

// transport returns the block on TLS of the page, with the certificates of a client.
func transport(t *testing.T, c process.Certificates, client string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## With TLS\n")
	block := yamlBlock.FindStringSubmatch(section)
	if block == nil {
		t.Fatal("the page has no block of YAML on TLS")
	}
	return replace(t, block[1], []string{"/etc/weir/ca.crt", c.File("ca.crt"), "/etc/weir/client-envoy", c.File(client)})
}

// An Envoy limits by two nodes with mutual TLS, also when one of them is killed.
func TestMutualTLS(t *testing.T) {
	binary(t)
	c, store := process.NewCertificates(t), process.StartEtcd(t)
	c.Make("client", "envoy", "--role", "check:edge")
	start := func(id string) *process.Node {
		return c.Start(id, "--etcd", store.Endpoint, "--rules", examples+"rules.yaml", "--tls-client-auth", "require", "--peer-timeout", "4s")
	}
	a, b := start("a"), start("b")
	process.AwaitSettled(t, patience, a, b)
	p := startProxy(t, []string{a.GRPC, b.GRPC}, "failure_mode_deny: false", "failure_mode_deny: true",
		plainWeir, plainWeir+transport(t, c, "client-envoy"))
	p.healthy(t, 2)
	limited := func(user string) {
		t.Helper()
		for i, want := range []int{200, 200, 200, 200, 200, 429, 429} {
			if resp := p.get(t, "/", user); resp.status != want {
				t.Errorf("request %d of %s: %d, want %d", i, user, resp.status, want)
			}
		}
	}
	limited("alice")
	a.Kill()
	limited("bob")
}

// A client or a node with a certificate of another CA, or a certificate of another cluster's nodes, is refused: no check is
// decided.
func TestMutualTLSRefuses(t *testing.T) {
	binary(t)
	c, foreign := process.NewCertificates(t), process.NewCertificates(t)
	for _, ca := range []process.Certificates{c, foreign} {
		ca.Make("client", "envoy", "--role", "check")
	}
	n := c.Start("a", "--rules", examples+"rules.yaml", "--tls-client-auth", "require")
	own, others := transport(t, c, "client-envoy"), transport(t, foreign, "client-envoy")
	for name, text := range map[string]string{
		"client of another CA": replace(t, others, []string{foreign.File("ca.crt"), c.File("ca.crt")}),
		"nodes of another CA":  replace(t, own, []string{c.File("ca.crt"), foreign.File("ca.crt")}),
		"another cluster":      replace(t, own, []string{"urn:weir:default:node:", "urn:weir:other:node:"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t, []string{n.GRPC}, "failure_mode_deny: false", "failure_mode_deny: true", plainWeir, plainWeir+text)
			for range 3 {
				if resp := p.get(t, "/", "alice"); resp.status != 500 {
					t.Errorf("status %d, want 500", resp.status)
				}
			}
		})
	}
	p := startProxy(t, []string{n.GRPC}, plainWeir, plainWeir+own)
	p.healthy(t, 2) // the example names two nodes
	if resp := p.get(t, "/", "alice"); resp.header.Get("X-RateLimit-Remaining") != "4" {
		t.Errorf("after refused clients: %d %v", resp.status, resp.header)
	}
}
