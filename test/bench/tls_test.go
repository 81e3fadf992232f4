package bench

import (
	"context"
	"crypto/tls"
	"os"
	"os/exec"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

// bearer shows a token with each call.
type bearer string

func (t bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }

// startSecure starts a node with TLS, and with a file of tokens unless that is empty, which is asked by clients as config and options say.
func startSecure(b *testing.B, certs process.Certificates, id string, tokens string, config *tls.Config, options ...grpc.DialOption) *servers {
	rules := b.TempDir() + "/rules.yaml"
	if err := os.WriteFile(rules, []byte(benchRules["default.yaml"]), 0o600); err != nil {
		b.Fatal(err)
	}
	flags := []string{"--rules", rules, "--etcd", process.StartEtcd(b).Endpoint}
	if tokens != "" {
		flags = append(flags, "--tokens", tokens)
	}
	n := certs.Start(id, flags...)
	s := &servers{pids: []int{n.PID()}}
	for range 2 {
		c, err := grpc.NewClient(n.GRPC, append(options, grpc.WithTransportCredentials(credentials.NewTLS(config)))...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		s.clients = append(s.clients, conn{weirv1.NewRateLimiterClient(c), rlsv3.NewRateLimitServiceClient(c)})
	}
	return s
}

// BenchmarkTLS reports what a check costs a node with TLS, to clients with certificates and with tokens, and the ratio to one without
// TLS: all of them in turns, in one run.
func BenchmarkTLS(b *testing.B) {
	certs := process.NewCertificates(b)
	certs.Make("client", "caller", "--role", "check")
	file := b.TempDir() + "/tokens"
	out, err := exec.Command(process.Binary(b), "tokens", "create", "caller", "--role", "check", "--file", file).Output()
	if err != nil {
		b.Fatalf("weir tokens create: %v\n%s", err, out)
	}
	token := strings.TrimSpace(string(out))
	plain := startWeir(b, 1)
	certificate := startSecure(b, certs, "a", "", certs.Config("client-caller"))
	tokens := startSecure(b, certs, "b", file, certs.Config(""), grpc.WithPerRPCCredentials(bearer(token)))
	for _, p := range paths[:2] {
		for range 5 {
			var plainCost, certificateCost float64
			b.Run(p.name+"/plain", func(b *testing.B) { plainCost = measure(b, plain, p.callers, p.perCall, p.start) })
			b.Run(p.name+"/certificate", func(b *testing.B) {
				certificateCost = measure(b, certificate, p.callers, p.perCall, p.start)
				b.ReportMetric(certificateCost/plainCost, "x-plain")
			})
			b.Run(p.name+"/token", func(b *testing.B) {
				cost := measure(b, tokens, p.callers, p.perCall, p.start)
				b.ReportMetric(cost/plainCost, "x-plain")
				b.ReportMetric(cost/certificateCost, "x-certificate")
			})
		}
	}
}
