package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/weirlimit/weir/internal/access"
)

// ClientAuth says whether clients need a certificate.
type ClientAuth string

// The values of ClientAuth. A certificate that is not of the cluster is refused by optional, too.
const (
	None     ClientAuth = "none"
	Optional ClientAuth = "optional"
	Require  ClientAuth = "require"
)

// ClientAuths are all values.
var ClientAuths = []ClientAuth{None, Optional, Require}

func (a ClientAuth) tls() tls.ClientAuthType {
	switch a {
	case None:
		return tls.NoClientCert
	case Optional:
		return tls.VerifyClientCertIfGiven
	case Require:
	}
	return tls.RequireAndVerifyClientCert
}

// peerProtocol is the application protocol (ALPN, RFC 7301) of connections between nodes.
const peerProtocol = "weir-peer"

// noProtocol is offered to clients that do not speak HTTP/2, so that they get the alert no_application_protocol (RFC 7301): crypto/tls
// lets a client of HTTP/1.1 have no protocol at all where a server has only h2, and it would see a connection that ends.
const noProtocol = "grpc"

// HTTP returns the configuration of a server of HTTP, which calls Closed for each connection that has ended.
func (s *Source) HTTP(clients ClientAuth) *tls.Config {
	protocols := []string{"h2", "http/1.1"}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			m := s.current.Load()
			config := s.config(m, clients, protocols)
			config.VerifyConnection = s.verifyHTTP(hello.Conn, m, config.VerifyConnection)
			return config, nil
		},
	}
}

// Etcd returns the configuration of the server in front of an etcd that this node runs. A client of it can change all of
// the cluster, so it takes nodes of the cluster, and clients with the role admin.
func (s *Source) Etcd() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := s.config(s.current.Load(), Require, []string{"h2"})
			config.VerifyConnection = func(state tls.ConnectionState) error {
				name, err := nameOf(state.PeerCertificates[0])
				if err == nil && (name.Cluster != s.self.Cluster || name.Kind != Node && !name.principal(false).Everywhere(access.Admin)) {
					err = fmt.Errorf("the certificate is for %v, and etcd takes nodes of cluster %q and clients with the role admin", name, s.self.Cluster)
				}
				return err
			}
			return config, nil
		},
	}
}

// config returns the configuration for one connection, by m. Sessions are not
// resumed, so that each connection is verified by it.
func (s *Source) config(m *material, clients ClientAuth, protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{m.cert},
		ClientCAs:              m.pool,
		ClientAuth:             clients.tls(),
		NextProtos:             protocols,
		SessionTicketsDisabled: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return nil
			}
			return s.isOurs(state.PeerCertificates[0])
		},
	}
}

// isOurs refuses certificates of other clusters, which the same CA may have issued.
func (s *Source) isOurs(cert *x509.Certificate) error {
	name, err := nameOf(cert)
	if err == nil && name.Cluster != s.self.Cluster {
		err = fmt.Errorf("the certificate is for %v, and this node is of cluster %q", name, s.self.Cluster)
	}
	return err
}
