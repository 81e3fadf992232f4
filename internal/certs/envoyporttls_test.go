package certs

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// A service shows its certificate, admits the clients that its CA and its name say, and takes new files.
func TestEnvoyPortAdmits(t *testing.T) {
	authority, other := newTestAuthority(t), newTestAuthority(t)
	issue := func(a *Authority, n Name, hosts ...string) Pair {
		t.Helper()
		n.Cluster = "c"
		pair, err := a.Issue(n, hosts, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	server := issue(authority, Name{Kind: Node, ID: "server"}, "localhost")
	named := issue(authority, Name{Kind: Node, ID: "named"}, "envoy")
	nameless := issue(authority, Name{Kind: Client, ID: "nameless", Role: "check"})
	strange := issue(other, Name{Kind: Node, ID: "strange"}, "envoy")
	for name, tc := range map[string]struct {
		ca, clientName string
		client         Pair
		refused        bool
	}{
		"any":                       {},
		"any, with a certificate":   {client: strange},
		"of the CA":                 {ca: authority.CertFile(), client: nameless},
		"of another CA":             {ca: authority.CertFile(), client: strange, refused: true},
		"none":                      {ca: authority.CertFile(), refused: true},
		"of the name":               {ca: authority.CertFile(), clientName: "envoy", client: named},
		"of no name":                {ca: authority.CertFile(), clientName: "envoy", client: nameless, refused: true},
		"of the name of another CA": {ca: authority.CertFile(), clientName: "envoy", client: strange, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := OpenEnvoyPort(Files{Cert: server.Cert, Key: server.Key, CA: tc.ca}, tc.clientName, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			config, err := HostClient(Files{Cert: tc.client.Cert, Key: tc.client.Key, CA: authority.CertFile()}, "localhost")
			if err != nil {
				t.Fatal(err)
			}
			if err := call(t, s, config); (err != nil) != tc.refused {
				t.Errorf("%v, want refused: %v", err, tc.refused)
			}
		})
	}
}

// call asks a gRPC server that has the certificate.
func call(t *testing.T, s *EnvoyPort, config *tls.Config) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(s.Credentials()))
	healthpb.RegisterHealthServer(server, health.NewServer())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// Files that are replaced are in force for the next client, a second later; bad ones leave those before.
func TestEnvoyPortReadsAgain(t *testing.T) {
	authority := newTestAuthority(t)
	first, err := authority.Issue(Name{Cluster: "c", Kind: Node, ID: "first"}, []string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	second, err := authority.Issue(Name{Cluster: "c", Kind: Node, ID: "second"}, []string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	files := Files{Cert: filepath.Join(t.TempDir(), "crt"), Key: filepath.Join(t.TempDir(), "key")}
	put := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(first.Cert, files.Cert)
	put(first.Key, files.Key)
	s, err := OpenEnvoyPort(files, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	problem := func() error { _, problem := s.State(); return problem }
	subject := func() string { return s.current().Certificates[0].Leaf.URIs[0].String() }
	put(second.Cert, files.Cert) // and not its key yet
	if got := subject(); !strings.Contains(got, "first") || problem() != nil {
		t.Errorf("at once: %s, %v", got, problem())
	}
	s.look()
	if problem() == nil { // although no client connects
		t.Error("half of the files are no problem")
	}
	if got := subject(); !strings.Contains(got, "first") || problem() == nil {
		t.Errorf("half of the files: %s, %v", got, problem())
	}
	put(second.Key, files.Key)
	s.look()
	if got := subject(); !strings.Contains(got, "second") || problem() != nil {
		t.Errorf("both files: %s, %v", got, problem())
	}
	if _, err := OpenEnvoyPort(Files{Cert: "none", Key: "none"}, "", slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "rls-cert, rls-key: ") {
		t.Errorf("no files: %v", err)
	}
}

func newTestAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := CreateAuthority(filepath.Join(t.TempDir(), "ca"), "c", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}
