package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"

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

// HTTP returns the configuration of a server of HTTP.
func (s *Source) HTTP(clients ClientAuth) *tls.Config {
	protocols := []string{"h2", "http/1.1"}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return s.config(s.current.Load(), clients, protocols), nil
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

// Connect secures a connection to another node, whose certificate must name a node of the cluster.
// The result implements NodeID and IsOutdated, and ends when the certificate of that node is not valid any more. Connect closes conn if it fails.
func (s *Source) Connect(ctx context.Context, conn net.Conn) (net.Conn, error) {
	m := s.current.Load()
	var node string
	secured := tls.Client(conn, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{m.cert},
		NextProtos:         []string{peerProtocol},
		InsecureSkipVerify: true, // by host name: VerifyConnection verifies the chain and the name of the node
		VerifyConnection: func(state tls.ConnectionState) (err error) {
			node, err = s.node(state, m.pool, x509.ExtKeyUsageServerAuth)
			return err
		},
	})
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error says more
		return nil, fmt.Errorf("TLS with the node at %s: %w", conn.RemoteAddr(), err)
	}
	return nodeConn{s.prove(secured, m, x509.ExtKeyUsageServerAuth), node}, nil
}

// node returns the id of the node at the other end of a connection.
func (s *Source) node(state tls.ConnectionState, pool *x509.CertPool, use x509.ExtKeyUsage) (string, error) {
	if state.NegotiatedProtocol != peerProtocol || len(state.PeerCertificates) == 0 {
		return "", fmt.Errorf("the other end is no node of Weir (protocol %q)", state.NegotiatedProtocol)
	}
	name, err := verify(state.PeerCertificates[0], state.PeerCertificates[1:], pool, use)
	if err != nil {
		return "", err
	}
	if name.Kind != Node || name.Cluster != s.self.Cluster {
		return "", fmt.Errorf("the certificate is for %v, and not for a node of cluster %q", name, s.self.Cluster)
	}
	return name.ID, nil
}

// nodeConn is a connection whose other end has proven to be a node.
type nodeConn struct {
	*provenConn
	id string
}

// NodeID returns the id of the node at the other end.
func (c nodeConn) NodeID() string { return c.id }

// Credentials secures the connections of a gRPC server. Those of other nodes are handed to inner
// once they are encrypted; their AuthInfo and their net.Conn implement NodeID, with the id in the
// certificate. Those of clients have an AuthInfo whose NodeID is empty.
func (s *Source) Credentials(clients ClientAuth, inner credentials.TransportCredentials) credentials.TransportCredentials {
	return serverCredentials{inner, s, clients}
}

type serverCredentials struct {
	credentials.TransportCredentials
	source  *Source
	clients ClientAuth
}

// ServerHandshake implements credentials.TransportCredentials. gRPC has given conn a deadline.
func (c serverCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m := c.source.current.Load()
	secured := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			switch {
			case slices.Contains(hello.SupportedProtos, peerProtocol):
				return c.source.config(m, Require, []string{peerProtocol}), nil
			case len(hello.SupportedProtos) > 0 && !slices.Contains(hello.SupportedProtos, "h2"):
				return c.source.config(m, c.clients, []string{noProtocol}), nil
			}
			return c.source.config(m, c.clients, []string{"h2"}), nil
		},
	})
	if err := secured.Handshake(); err != nil {
		return nil, nil, err
	}
	state := secured.ConnectionState()
	info := Info{TLSInfo: credentials.TLSInfo{
		State:          state,
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}}
	switch state.NegotiatedProtocol {
	case "h2":
		info.principal = Principal(&state)
		if len(state.PeerCertificates) == 0 {
			return secured, info, nil
		}
		return c.source.prove(secured, m, x509.ExtKeyUsageClientAuth), info, nil
	case peerProtocol:
		id, err := c.source.node(state, m.pool, x509.ExtKeyUsageClientAuth)
		if err != nil {
			return nil, nil, err
		}
		info.node = id
		info.principal = Name{Cluster: c.source.self.Cluster, Kind: Node, ID: id}.principal(true)
		proven := c.source.prove(secured, m, x509.ExtKeyUsageClientAuth)
		plain, _, err := c.TransportCredentials.ServerHandshake(nodeConn{proven, id})
		if err != nil && !errors.Is(err, credentials.ErrConnDispatched) { // gRPC closes the conn below this one
			_ = proven.Close()
		}
		return plain, info, err
	}
	return nil, nil, fmt.Errorf("the client offers no HTTP/2 (ALPN h2), but %q", state.NegotiatedProtocol)
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials {
	return serverCredentials{c.TransportCredentials.Clone(), c.source, c.clients}
}

// Info is what a gRPC server knows of an encrypted connection.
type Info struct {
	credentials.TLSInfo
	node      string
	principal *access.Principal
}

// Principal returns the caller that the certificate names, nil if there is none.
func (i Info) Principal() *access.Principal { return i.principal }

// NodeID returns the id of the node at the other end, or nothing of a client.
func (i Info) NodeID() string { return i.node }
