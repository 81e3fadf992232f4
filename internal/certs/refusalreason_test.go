package certs

import (
	"crypto/tls"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
)

// A client that a server refuses for its certificate says so, also if it has written more before it reads that.
func TestRefusedClientSaysWhy(t *testing.T) {
	a := newAuthority(t, "shop")
	files := issue(t, a, node("a"))
	creds, err := EtcdCredentials(Files{CA: files.CA}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", open(t, files, "a").HTTP(Require))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	refused := make(chan error)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = conn.(*tls.Conn).HandshakeContext(t.Context())
			conn.Close()
		}
		refused <- err
	}()
	raw, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn, _, err := creds.ClientHandshake(t.Context(), listener.Addr().String(), raw)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-refused; err == nil {
		t.Fatal("the server takes a client without a certificate")
	}
	for range 1000 { // the first writes succeed, until the server's kernel has answered them
		if _, err = conn.Write([]byte("more")); err != nil {
			break
		}
		runtime.Gosched()
	}
	if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
		t.Errorf("error %v, not that of the server", err)
	}
}
