package certs

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
)

// A node connects to no other end than a node of its cluster.
func TestConnectOnlyToNodes(t *testing.T) {
	shop, other := newAuthority(t, "shop"), newAuthority(t, "other")
	a := open(t, issue(t, shop, node("a")), "a")
	stranger, err := Open(issue(t, other, node("b")), Name{Cluster: "other", Kind: Node, ID: "b"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(t, stranger, None, func(c net.Conn) error { _, err := a.Connect(t.Context(), c); return err }); err == nil {
		t.Error("connected to a node of another cluster")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(conn, "no TLS")
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Connect(t.Context(), conn); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("connected to a node without TLS: %v", err)
	}
}

// Only a node that claims to be the one that is meant, and a certificate that is not accepted, are a refusal: else another service has its address.
func TestIsRefusal(t *testing.T) {
	ours, foreign := newAuthority(t, "shop"), newAuthority(t, "shop")
	a := open(t, issue(t, ours, node("a")), "a")
	serve := func(config *tls.Config) (address string) {
		l, err := tls.Listen("tcp", "127.0.0.1:0", config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				go func() {
					_ = conn.(*tls.Conn).HandshakeContext(t.Context())
					_ = conn.Close()
				}()
			}
		}()
		return l.Addr().String()
	}
	of := func(s *Source, protocol string, auth tls.ClientAuthType) *tls.Config {
		m := s.current.Load()
		return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{m.cert}, NextProtos: []string{protocol}, ClientAuth: auth, ClientCAs: m.pool}
	}
	b := open(t, issue(t, foreign, node("b")), "b")
	both := withCA(issue(t, ours, node("b")), foreign.CertFile()) // it accepts certificates of the other CA only
	pair, err := tls.LoadX509KeyPair(both.Cert, both.Key)
	if err != nil {
		t.Fatal(err)
	}
	accepting := of(b, peerProtocol, tls.RequireAndVerifyClientCert)
	accepting.Certificates = []tls.Certificate{pair}
	for name, tc := range map[string]struct {
		config *tls.Config
		id     string
		want   bool
	}{
		"a node of another CA":         {of(b, peerProtocol, tls.NoClientCert), "b", true},
		"another node of another CA":   {of(b, peerProtocol, tls.NoClientCert), "c", false},
		"a node that accepts others":   {accepting, "b", true},
		"another service":              {of(b, "h2", tls.NoClientCert), "b", false},
		"another service without ALPN": {&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}}, "b", false},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", serve(tc.config))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			secured, err := a.Connect(t.Context(), conn)
			if err == nil {
				_, err = secured.Read(make([]byte, 1))
			}
			if err == nil || IsRefusal(err, tc.id) != tc.want {
				t.Errorf("%v: a refusal is %v, want %v", err, !tc.want, tc.want)
			}
		})
	}
}
