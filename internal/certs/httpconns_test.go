package certs

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// overHTTP connects a client with those files to the server of HTTP of node a, and returns the end of the node.
func overHTTP(t *testing.T, a *Source, files Files) *tls.Conn {
	t.Helper()
	config, err := ClientConfig(files)
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = "localhost"
	near, far := net.Pipe()
	client, server := tls.Client(near, config), tls.Server(far, a.HTTP(Require))
	go func() {
		_ = client.Handshake()
		_, _ = io.Copy(io.Discard, client) // as its alert would block
	}()
	if err := server.Handshake(); err != nil {
		t.Fatal(err)
	}
	return server
}

// Connections of HTTP end soon after the CA of the client's certificate is no longer in force, and others go on.
func TestHTTPConnectionEndsWithItsCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newAuthority(t, "shop"), newAuthority(t, "shop")
		old, err := os.ReadFile(before.CertFile())
		if err != nil {
			t.Fatal(err)
		}
		onlyNew, err := os.ReadFile(after.CertFile())
		if err != nil {
			t.Fatal(err)
		}
		both := t.TempDir() + "/both.crt"
		if err := os.WriteFile(both, append(old, onlyNew...), 0o600); err != nil {
			t.Fatal(err)
		}
		a := open(t, withCA(issue(t, after, node("a")), both), "a")
		client := Name{Kind: Client, ID: "x", Role: "check"}
		ofOld := withCA(issue(t, before, client), both)
		refused, closed := overHTTP(t, a, ofOld), overHTTP(t, a, ofOld)
		goesOn := overHTTP(t, a, withCA(issue(t, after, client), both))
		if err := closed.Close(); err != nil {
			t.Fatal(err)
		}
		a.Closed(closed)
		ends, others := endOf(refused), endOf(goesOn)
		if err := os.WriteFile(both, onlyNew, 0o600); err != nil {
			t.Fatal(err)
		}
		a.look()
		if a.Err() != nil {
			t.Fatal(a.Err())
		}
		time.Sleep(endAfter - time.Second)
		if hasEnded(ends) {
			t.Error("it has ended before the client could show another certificate")
		}
		a.look() // nothing has changed: it does not go on for longer
		time.Sleep(2 * time.Second)
		if !hasEnded(ends) {
			t.Error("the connection of a client goes on whose CA was taken out")
		}
		if hasEnded(others) {
			t.Error("a connection has ended whose CA is in force")
		}
		a.Closed(refused)
		if n := len(a.http.all); n != 1 {
			t.Errorf("%d connections are kept, want the one that goes on", n)
		}
		_ = goesOn.Close()
	})
}
