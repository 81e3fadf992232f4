package dev

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// echo answers each connection with what it gets.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	return l.Addr().String()
}

func startProxy(t *testing.T, names map[string]string) *Proxy {
	t.Helper()
	r, err := NewProxy("127.0.0.1", names)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// hears reports whether an echo of text comes within a time.
func hears(t *testing.T, conn net.Conn, text string, within time.Duration) bool {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	_, err := io.ReadFull(conn, got)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return err == nil && bytes.Equal(got, []byte(text))
}

const (
	patience = 10 * time.Second
	silence  = 100 * time.Millisecond
)

// What is sent between parts that are cut arrives when they are healed, and other parts hear each other meanwhile.
func TestProxyHoldsWhatIsSentBetweenCutParts(t *testing.T) {
	address := echo(t)
	r := startProxy(t, map[string]string{address: "b"})
	conns := make(map[string]net.Conn)
	for _, from := range []string{"a", "c"} {
		conn, err := Dialer(r.Address(), from)(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		conns[from] = conn
	}
	say := func(from, text string) {
		t.Helper()
		if _, err := io.WriteString(conns[from], text); err != nil {
			t.Fatal(err)
		}
	}
	say("a", "before")
	if !hears(t, conns["a"], "before", patience) {
		t.Fatal("nothing is proxied")
	}
	r.Set("b", "a", true)
	say("a", "held")
	say("c", "other")
	if !hears(t, conns["c"], "other", patience) {
		t.Error("c is cut, too")
	}
	if hears(t, conns["a"], "held", silence) {
		t.Error("a is not cut")
	}
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	if conn, err := Dialer(r.Address(), "a")(ctx, address); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a connects while it is cut: %v, %v", conn, err)
	}
	r.Set("a", "b", false)
	if !hears(t, conns["a"], "held", patience) {
		t.Error("what was sent is lost after the heal")
	}
}

// A dial that began while parts were cut is connected when they are healed.
func TestProxyConnectsAfterHeal(t *testing.T) {
	address := echo(t)
	r := startProxy(t, map[string]string{address: "b"})
	r.Set("a", "b", true)
	dialed := make(chan error, 1)
	go func() {
		conn, err := Dialer(r.Address(), "a")(t.Context(), address)
		if err == nil {
			err = conn.Close()
		}
		dialed <- err
	}()
	select {
	case err := <-dialed:
		t.Fatalf("connected through a cut: %v", err)
	case <-time.After(silence):
	}
	r.Set("a", "b", false)
	if err := <-dialed; err != nil {
		t.Error(err)
	}
}

func TestProxyRefuses(t *testing.T) {
	gone := echo(t)
	r := startProxy(t, map[string]string{"127.0.0.1:1": "dead"})
	for name, address := range map[string]string{"an address of no part": gone, "a part that is dead": "127.0.0.1:1"} {
		if _, err := Dialer(r.Address(), "a")(t.Context(), address); err == nil || !strings.Contains(err.Error(), "connect to "+address) || !strings.Contains(err.Error(), "no answer there") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A line without an end is not read for ever.
	conn, err := net.Dial("tcp", r.Address())
	if err == nil {
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprint(conn, strings.Repeat("x", 2*maxGreeting))
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a long greeting is not refused: %v", err)
	}
}

// Close ends connections that are held.
func TestProxyCloseEndsHeldConnections(t *testing.T) {
	address := echo(t)
	r := startProxy(t, map[string]string{address: "b"})
	conn, err := Dialer(r.Address(), "a")(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	r.Set("a", "b", true)
	if _, err := io.WriteString(conn, "held"); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil { // waits for all that it runs
		t.Error(err)
	}
}
