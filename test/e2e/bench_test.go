package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// weir bench grpc asks nodes that have TLS and want a certificate or a token, in all its modes. Without either it
// says what is missing, as other commands do.
func TestBenchWithTLS(t *testing.T) {
	testform.NotInBrief(t)
	p := process.NewCertificates(t)
	p.Make("client", "asks", "--role", "check")
	tokens := p.File("tokens")
	secret, err := exec.CommandContext(t.Context(), process.Binary(t), "tokens", "create", "load", "--role", "check", "--file", tokens).Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.File("load.token"), secret, 0o600); err != nil {
		t.Fatal(err)
	}
	n := p.Start("a", "--tokens", tokens, "--rules", writeRules(t, lastingRule))
	withToken := "--token-file " + p.File("load.token")
	for _, tc := range []struct {
		cert, args string
		want       string // in the output; empty if the benchmark works
	}{
		{"client-asks", "--mode unary", ""},
		{"client-asks", "--mode stream --callers 1", ""},
		{"client-asks", "--mode envoy", ""},
		{"client-asks", "--via client", ""},
		{"client-asks", "--mode batch --baseline node", ""},
		{"ca", "--mode batch " + withToken, ""},
		{"ca", "--mode stream --callers 1 " + withToken, ""},
		{"ca", "--via leases " + withToken, ""},
		{"ca", "--mode unary", `needs the role "check"`},
		{"", "--mode unary", "pass --tls-ca if it has TLS"},
		{"", "--mode unary " + withToken, "a token is not sent unencrypted"},
		{"", "--mode unary --tls-ca " + p.File("none.crt"), "none.crt: no such file"},
	} {
		args := append([]string{"bench", "grpc", "--json", "--duration", "100ms", "--keys", "5", "--node", n.GRPC}, strings.Fields(tc.args)...)
		out, err := weirWith(t, p, tc.cert, args...)
		if tc.want != "" {
			if err == nil || !strings.Contains(out, tc.want) {
				t.Errorf("%q %s: %v\n%s, want %q", tc.cert, tc.args, err, out, tc.want)
			}
			continue
		}
		var report struct{ Checks, Errors int64 }
		if jsonErr := json.Unmarshal([]byte(out), &report); err != nil || jsonErr != nil || report.Checks == 0 || report.Errors > 0 {
			t.Errorf("%q %s: %v %v\n%s", tc.cert, tc.args, err, jsonErr, out)
		}
	}
}
