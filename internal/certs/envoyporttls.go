package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// rereadEvery is how old what was read of files may be.
const rereadEvery = time.Second

// EnvoyPort has a certificate for clients that are none of Weir's, which names a host and no node. Run reads the files
// again every second. Files that cannot be used leave what was read before in force. It is
// safe for concurrent use.
type EnvoyPort struct {
	files      Files
	clientName string
	log        *slog.Logger

	mu      sync.Mutex
	config  *tls.Config // guarded by mu; of the files that could be read last
	problem error       // guarded by mu; of the files as they are now; nil if they are in force
}

// OpenEnvoyPort reads the files. With files.CA, clients must show a certificate of that CA, which has the DNS name
// clientName unless that is empty. The error says which file cannot be used, and why.
func OpenEnvoyPort(files Files, clientName string, log *slog.Logger) (*EnvoyPort, error) {
	s := &EnvoyPort{files: files, clientName: clientName, log: log}
	config, err := s.read()
	s.config = config
	return s, err
}

// Credentials secures the connections of a gRPC server.
func (s *EnvoyPort) Credentials() credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.current(), nil },
	})
}

// Run reads the files again every second until ctx ends.
func (s *EnvoyPort) Run(ctx context.Context) {
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.look()
		}
	}
}

// State returns when the certificate in force ends, and why the files as they were read last cannot be used, or nil. It
// answers at once, also if a file system hangs.
func (s *EnvoyPort) State() (ends time.Time, problem error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.Certificates[0].Leaf.NotAfter, s.problem
}

// current returns what a client that connects now is shown.
func (s *EnvoyPort) current() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config
}

// look reads the files, and puts them in force if they can be used.
func (s *EnvoyPort) look() {
	config, err := s.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && (s.problem == nil || s.problem.Error() != err.Error()) {
		s.log.Error("certificate for Envoy not read again: the one before stays in force", "error", err)
	}
	if s.problem = err; err == nil {
		s.config = config
	}
}

// read reads the files, all or none.
func (s *EnvoyPort) read() (*tls.Config, error) {
	pair, err := s.files.pair("rls")
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*pair}}
	if s.files.CA == "" {
		return config, nil
	}
	if config.ClientCAs, err = s.files.pool("rls"); err != nil {
		return nil, err
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	if s.clientName != "" {
		config.VerifyConnection = func(state tls.ConnectionState) error { return hasName(state.PeerCertificates[0], s.clientName) }
	}
	return config, nil
}

// hasName refuses a certificate without a DNS name.
func hasName(cert *x509.Certificate, name string) error {
	if err := cert.VerifyHostname(name); err != nil {
		return fmt.Errorf("the client's certificate: %w", err)
	}
	return nil
}
