package bench

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/test/process"
)

// bearer shows a token with each call.
type bearer string

func (t bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

func (bearer) RequireTransportSecurity() bool { return true }

// startSecure starts a node with TLS, and with a file of tokens unless that is empty, which is asked with those options.
func startSecure(b *testing.B, certs process.Certificates, id string, tokens string, options ...grpc.DialOption) *servers {
	rules := b.TempDir() + "/rules.yaml"
	if err := os.WriteFile(rules, []byte(benchRules["default.yaml"]), 0o600); err != nil {
		b.Fatal(err)
	}
	flags := []string{"--rules", rules, "--etcd", process.StartEtcd(b).Endpoint}
	if tokens != "" {
		flags = append(flags, "--tokens", tokens)
	}
	n := certs.Start(id, flags...)
	s := new(servers)
	s.add(b, n.GRPC, n.PID(), options...)
	return s
}

// inTurns are servers whose costs are compared.
type inTurns struct {
	name    string
	of      []string // those that it is compared with
	servers *servers
	costs   []float64 // processor time per check in each round, in µs
}

// startTLS starts a bare server and a node, each with TLS and without, and a node that wants tokens.
func startTLS(b *testing.B) []*inTurns {
	certs := process.NewCertificates(b)
	certs.Make("client", "caller", "--role", "check")
	file := b.TempDir() + "/tokens"
	out, err := exec.Command(process.Binary(b), "tokens", "create", "caller", "--role", "check", "--file", file).Output()
	if err != nil {
		b.Fatalf("weir tokens create: %v\n%s", err, out)
	}
	secured := func(client string) grpc.DialOption {
		return grpc.WithTransportCredentials(credentials.NewTLS(certs.Config(client)))
	}
	bare := []string{"--settings", "node", "--listen", process.Host(b) + ":0"}
	token := grpc.WithPerRPCCredentials(bearer(strings.TrimSpace(string(out))))
	bareTLS := startBareServer(b, append(bare, "--tls-cert", certs.File("node-c.crt"), "--tls-key", certs.File("node-c.key")), secured(""))
	bareToken := new(servers) // the same one, which does not look at tokens
	bareToken.add(b, bareTLS.addresses[0], bareTLS.pids[0], secured(""), token)
	return []*inTurns{
		{name: "bare", servers: startBareServer(b, bare, plaintext)},
		{name: "bare-tls", of: []string{"bare"}, servers: bareTLS},
		{name: "bare-tls-token", of: []string{"bare"}, servers: bareToken},
		{name: "plain", servers: startWeir(b, 1)},
		{name: "certificate", of: []string{"plain"}, servers: startSecure(b, certs, "a", "", secured("client-caller"))},
		{name: "token", of: []string{"plain", "certificate"}, servers: startSecure(b, certs, "b", file, secured(""), token)},
	}
}

// BenchmarkTLS compares the processor time of a check of servers with TLS and without, and of a node with tokens. All are asked in turns of
// some tenths of a second, b.N times: what other processes take from the machine changes more slowly than that. It reports medians
// of the ratios of all rounds, and logs the quartiles.
func BenchmarkTLS(b *testing.B) {
	all := startTLS(b)
	for _, p := range paths[:2] {
		b.Run(p.name, func(b *testing.B) {
			for _, s := range all {
				s.costs = nil
				s.turn(b, p) // until all is in use
			}
			for round := range b.N {
				for i := range all {
					s := all[(round+i)%len(all)]
					s.costs = append(s.costs, s.turn(b, p))
				}
			}
			for _, s := range all {
				s.report(b, all)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// tlsCallers are so few that no node refuses them, also while other processes keep the machine busy.
const tlsCallers = 16

// turn has a server answer 4000 calls, or 1000 of many checks, and returns the processor time of a check, in µs.
func (s *inTurns) turn(b *testing.B, p path) float64 {
	size := 4000
	if p.perCall > 1 {
		size = 1000
	}
	before := s.servers.cpu(b)
	askTimes(b, size, s.servers.clients, tlsCallers, p.start)
	return float64((s.servers.cpu(b) - before).Nanoseconds()) / 1000 / float64(size*p.perCall)
}

// report reports the cost of a server, and how many times that of others it is.
func (s *inTurns) report(b *testing.B, all []*inTurns) {
	_, cost, _ := quartiles(s.costs)
	b.ReportMetric(cost, s.name+"-µs/check")
	for _, other := range all {
		if !slices.Contains(s.of, other.name) {
			continue
		}
		var ratios []float64
		for i := range s.costs {
			ratios = append(ratios, s.costs[i]/other.costs[i])
		}
		low, median, high := quartiles(ratios)
		b.ReportMetric(median, s.name+"-x-"+other.name)
		b.Logf("%s, of %s: %.3f (half of %d rounds: %.3f to %.3f)", s.name, other.name, median, len(ratios), low, high)
	}
}

// quartiles returns the values that a quarter, half and three quarters of all do not exceed.
func quartiles(values []float64) (low, median, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)-1)/4], sorted[(len(sorted)-1)/2], sorted[(len(sorted)-1)*3/4]
}
