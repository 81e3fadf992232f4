package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/internal/access"
)

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
