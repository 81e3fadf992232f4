package certs

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// handshake connects a client by config, or another node, to the server of s, and returns what the
// server knows of it.
func handshake(t *testing.T, s *Source, auth ClientAuth, connect func(net.Conn) error) (credentials.AuthInfo, error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	clientDone := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			err = connect(conn)
		}
		clientDone <- err
	}()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, info, err := s.Credentials(auth, insecure.NewCredentials()).ServerHandshake(conn)
	_ = conn.Close()
	return info, errors.Join(err, <-clientDone)
}

func TestAllowedConnections(t *testing.T) {
	a, other := newAuthority(t, "shop"), newAuthority(t, "shop")
	server := open(t, issue(t, a, node("a")), "a")
	asClient := func(files Files, protocols ...string) func(net.Conn) error {
		return func(conn net.Conn) error {
			config, err := ClientConfig(files)
			if err != nil {
				return err
			}
			config.NextProtos, config.ServerName = protocols, "localhost"
			return tls.Client(conn, config).Handshake()
		}
	}
	asNode := func(s *Source) func(net.Conn) error {
		return func(conn net.Conn) error {
			_, err := s.Connect(t.Context(), conn)
			return err
		}
	}
	client := issue(t, a, Name{Kind: Client, ID: "x", Role: "check"})
	foreign, err := Open(issue(t, other, node("b")), Name{Cluster: "shop", Kind: Node, ID: "b"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		auth    ClientAuth
		connect func(net.Conn) error
		ok      bool
		node    string
	}{
		"node":                              {None, asNode(open(t, issue(t, a, node("b")), "b")), true, "b"},
		"node of another CA":                {None, asNode(foreign), false, ""},
		"client as a node":                  {None, asClient(client, peerProtocol), false, ""},
		"no certificate as a node":          {None, asClient(Files{CA: a.CertFile()}, peerProtocol), false, ""},
		"client":                            {Require, asClient(client, "h2"), true, ""},
		"client without certificate":        {Require, asClient(Files{CA: a.CertFile()}, "h2"), false, ""},
		"without certificate, none needed":  {None, asClient(Files{CA: a.CertFile()}, "h2"), true, ""},
		"without certificate, optional":     {Optional, asClient(Files{CA: a.CertFile()}, "h2"), true, ""},
		"certificate of another CA":         {Optional, asClient(withCA(issue(t, other, Name{Kind: Client, ID: "x", Role: "check"}), a.CertFile()), "h2"), false, ""},
		"another protocol":                  {None, asClient(Files{CA: a.CertFile()}, "http/1.1"), false, ""},
		"not encrypted":                     {None, func(c net.Conn) error { _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); return err }, false, ""},
		"certificate of a node as a client": {Require, asClient(issue(t, a, node("d")), "h2"), true, ""},
	} {
		info, err := handshake(t, server, tc.auth, tc.connect)
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tc.ok && info.(Info).NodeID() != tc.node {
			t.Errorf("%s: node %q", name, info.(Info).NodeID())
		}
	}
}

// A client of HTTP that has taken the port of gRPC is told so by an alert, rather than by the end of the connection.
func TestClientOfHTTPIsTold(t *testing.T) {
	a := newAuthority(t, "shop")
	server := open(t, issue(t, a, node("a")), "a")
	var told error
	if _, err := handshake(t, server, None, func(conn net.Conn) error {
		config, err := ClientConfig(Files{CA: a.CertFile()})
		if err != nil {
			return err
		}
		config.NextProtos, config.ServerName = []string{"http/1.1"}, "localhost"
		told = tls.Client(conn, config).Handshake()
		return told
	}); err == nil {
		t.Error("the server takes it")
	}
	if told == nil || !strings.Contains(told.Error(), "no application protocol") {
		t.Errorf("the client is told %v", told)
	}
}

// asClientOf returns how a client with a certificate of that authority connects.
func asClientOf(t *testing.T, a *Authority) func(net.Conn) error {
	t.Helper()
	config, err := ClientConfig(issue(t, a, Name{Kind: Client, ID: "x", Role: "check"}))
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos, config.ServerName = []string{"h2"}, "localhost"
	return func(conn net.Conn) error { return tls.Client(conn, config).Handshake() }
}
