package certs

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// dispatching are credentials that hand a connection over, as those of nodes do.
type dispatching struct {
	credentials.TransportCredentials
	took chan net.Conn
}

func (d dispatching) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	d.took <- conn
	return nil, nil, credentials.ErrConnDispatched
}

// linked connects node b to node a, and returns both ends.
func linked(t *testing.T, a, b *Source) (accepted, dialed net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	took := make(chan net.Conn, 1)
	go func() {
		_, _, _ = a.Credentials(None, dispatching{insecure.NewCredentials(), took}).ServerHandshake(far)
	}()
	dialed, err := b.Connect(t.Context(), near)
	if err != nil {
		t.Fatal(err)
	}
	return <-took, dialed
}

// connected connects a client with those files to node a, and returns the end of the node.
func connected(t *testing.T, a *Source, files Files) net.Conn {
	t.Helper()
	config, err := ClientConfig(files)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos, config.ServerName = []string{"h2"}, "localhost"
	near, far := net.Pipe()
	client := tls.Client(near, config)
	go func() {
		_ = client.Handshake()
		_, _ = io.Copy(io.Discard, client) // as its alert would block
	}()
	conn, _, err := a.Credentials(Require, insecure.NewCredentials()).ServerHandshake(far)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// endOf returns a channel that is closed when conn ends.
func endOf(conn net.Conn) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, conn)
		close(ended)
	}()
	return ended
}

func hasEnded(c <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Connections of clients and nodes end when the certificate of the other end expires, and not before.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := newAuthority(t, "shop") // at the time of the bubble
		a := open(t, issue(t, authority, node("a")), "a")
		time.Sleep(time.Minute)
		early := time.Now().Add(lifetime)
		client := connected(t, a, issue(t, authority, Name{Kind: Client, ID: "x", Role: "check"}))
		accepted, dialed := linked(t, a, open(t, issue(t, authority, node("b")), "b"))
		ends := map[string]<-chan struct{}{"of a client": endOf(client), "of a node": endOf(accepted)}
		other := endOf(dialed) // its certificate is a minute older
		time.Sleep(time.Until(early) - 2*time.Minute)
		for name, end := range ends {
			if hasEnded(end) {
				t.Errorf("the connection %s has ended early", name)
			}
		}
		if hasEnded(other) {
			t.Error("the connection to a node has ended early")
		}
		time.Sleep(2*time.Minute + time.Second)
		for name, end := range ends {
			if !hasEnded(end) {
				t.Errorf("the connection %s goes on", name)
			}
		}
		if len(a.open.all) > 0 {
			t.Errorf("%d connections are kept", len(a.open.all))
		}
		_, _, _ = client.Close(), accepted.Close(), dialed.Close()
	})
}

// Connections end soon after the CA of the other end's certificate is no longer in force, and others go on.
func TestConnectionEndsWithItsCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newAuthority(t, "shop"), newAuthority(t, "shop")
		both := t.TempDir() + "/both.crt"
		for _, ca := range []*Authority{before, after} {
			text, err := os.ReadFile(ca.CertFile())
			if err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(both, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Write(text); err != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}
		a := open(t, withCA(issue(t, after, node("a")), both), "a")
		b := open(t, withCA(issue(t, before, node("b")), both), "b")
		c := open(t, withCA(issue(t, after, node("c")), both), "c")
		fromB, toA := linked(t, a, b)
		fromC, _ := linked(t, a, c)
		old, renewed := endOf(fromB), endOf(fromC)
		endOf(toA) // reads, as the alert would block
		if toA.(interface{ IsOutdated() bool }).IsOutdated() {
			t.Error("a new connection is outdated")
		}
		onlyNew, err := os.ReadFile(after.CertFile())
		if err == nil {
			err = os.WriteFile(both, onlyNew, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.look()
		if a.Err() != nil {
			t.Fatal(a.Err())
		}
		if hasEnded(old) {
			t.Error("it has ended before it could be renewed")
		}
		time.Sleep(endAfter + time.Second)
		if !hasEnded(old) {
			t.Error("the connection of a node goes on whose CA was taken out")
		}
		if hasEnded(renewed) {
			t.Error("a connection has ended whose CA is in force")
		}
		_, _, _ = fromB.Close(), fromC.Close(), toA.Close()
	})
}

// A connection to a node is outdated when this node has other certificates, and before one of both ends.
func TestIsOutdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority := newAuthority(t, "shop")
		a := open(t, issue(t, authority, node("a")), "a")
		files := issue(t, authority, node("b"))
		b := open(t, files, "b")
		accepted, dialed := linked(t, a, b)
		defer func() { _, _ = accepted.Close(), dialed.Close() }()
		go func() { _, _ = io.Copy(io.Discard, dialed) }()
		isOutdated := dialed.(interface{ IsOutdated() bool }).IsOutdated
		expires := b.Expires()
		time.Sleep(time.Until(expires) - renewBefore - time.Second)
		if isOutdated() {
			t.Error("it is outdated more than a minute before its end")
		}
		time.Sleep(2 * time.Second)
		if !isOutdated() {
			t.Error("it is not outdated a minute before its end")
		}
		again, dialedAgain := linked(t, a, b)
		defer func() { _, _ = again.Close(), dialedAgain.Close() }()
		if dialedAgain.(interface{ IsOutdated() bool }).IsOutdated() {
			t.Error("a new connection is outdated at once, so that it would be made over and over")
		}
		for _, path := range []string{files.Cert, files.Key} {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
		issue(t, authority, node("b"))
		b.look()
		if !dialedAgain.(interface{ IsOutdated() bool }).IsOutdated() {
			t.Error("it is not outdated although this node has another certificate")
		}
	})
}
