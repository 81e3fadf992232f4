package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

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
		refused := unverifiedError{error: err}
		if claimed, err := nameOf(state.PeerCertificates[0]); err == nil && claimed.Kind == Node && claimed.Cluster == s.self.Cluster {
			refused.claimed = claimed.ID
		}
		return "", refused
	}
	if name.Kind != Node || name.Cluster != s.self.Cluster {
		return "", fmt.Errorf("the certificate is for %v, and not for a node of cluster %q", name, s.self.Cluster)
	}
	return name.ID, nil
}

// unverifiedError says why the certificate of a node is not verified, and which node of the cluster it claims to be, if any.
type unverifiedError struct {
	error
	claimed string
}

// certificateAlerts are how crypto/tls says that the other end does not accept a certificate.
var certificateAlerts = []string{"bad certificate", "unsupported certificate", "revoked certificate", "expired certificate", "unknown certificate", "unknown certificate authority"}

// IsRefusal reports whether a connection to the node of an id has failed because one of its ends does not accept the certificate of the other. It is no proof that the
// other end is that node.
func IsRefusal(err error, id string) bool {
	if here, is := errors.AsType[unverifiedError](err); is {
		return here.claimed == id
	}
	there, is := errors.AsType[*net.OpError](err)
	return is && there.Op == "remote error" && slices.Contains(certificateAlerts, strings.TrimPrefix(there.Err.Error(), "tls: "))
}

// nodeConn is a connection whose other end has proven to be a node.
type nodeConn struct {
	*provenConn
	id string
}

// NodeID returns the id of the node at the other end.
func (c nodeConn) NodeID() string { return c.id }
