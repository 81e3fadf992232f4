package certs

import (
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
