package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// nginx asks nodes with TLS by the lines of the page, and verifies them.
func TestNginxWithTLS(t *testing.T) {
	t.Parallel()
	findProgram(t, "nginx")
	c, foreign := process.NewCertificates(t, "weir"), process.NewCertificates(t, "weir")
	for _, ca := range []process.Certificates{c, foreign} {
		ca.Make("client", "nginx", "--role", "check")
	}
	rules := writeRules(t, "domain: default\nrules:\n  - {id: all, per: [ip], limits: [{limit: 2, window: 365d}]}\n")
	node := c.Start("a", "--rules", rules, "--tls-client-auth", "require")
	start := func(t *testing.T, own, ca process.Certificates, edit func(string) string) gateway {
		patient := strings.NewReplacer("100ms", "10s", "250ms", "10s") // a busy machine is no reason to let a request pass
		return startNginx(t, node.HTTP, func(config string) string { return edit(patient.Replace(secured(t, config, own, ca))) })
	}
	g := start(t, c, c, asItIs)
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		if r := g.post(t, "/", "Weir-Authorization: Bearer weir_of-the-client"); r.code != want { // known by the certificate of nginx
			t.Errorf("request %d: %v, want %d", i, r, want)
		}
	}
	closed := without(t, "error_page 500 502 504", ";")
	for name, g := range map[string]gateway{
		"client of another CA": start(t, foreign, c, closed),
		"node of another CA":   start(t, c, foreign, closed),
	} {
		if r := g.post(t, "/"); r.code != http.StatusInternalServerError {
			t.Errorf("%s: %v, want 500", name, r)
		}
	}
}

// secured returns the configuration of nginx with the lines on TLS of the page: nginx has the client's certificate of own,
// and verifies nodes by ca.
func secured(t *testing.T, config string, own, ca process.Certificates) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/gateways.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## With TLS\n")
	_, block, found := strings.Cut(section, "```nginx\n")
	block, _, ended := strings.Cut(block, "```")
	const plain = "            proxy_pass http://weir/auth;\n"
	if !found || !ended || !strings.Contains(config, plain) {
		t.Fatal("the page has no block on TLS, or the configuration does not have the line that it replaces")
	}
	block = strings.NewReplacer("/etc/weir/ca.crt", ca.File("ca.crt"), "/etc/weir/client-nginx", own.File("client-nginx")).Replace(block)
	return strings.Replace(config, plain, block, 1)
}
