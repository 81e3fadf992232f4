package network_test

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/weirlimit/weir/test/sim/network"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns two hosts, a that listens at a:1, and b.
func pair(t *testing.T, n *network.Network) (a, b *network.Host, l net.Listener) {
	t.Helper()
	a, b = host(t, n, "a"), host(t, n, "b")
	l, err := a.Listen(t.Context(), "a:1")
	if err != nil {
		t.Fatal(err)
	}
	return a, b, l
}

func host(t *testing.T, n *network.Network, name string) *network.Host {
	t.Helper()
	h, err := n.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// connect returns a connection from b to a.
func connect(t *testing.T, b *network.Host, l net.Listener) (atA, atB net.Conn) {
	t.Helper()
	atB, err := b.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if atA, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return atA, atB
}

// Connections do all that package net asks of them: deadlines, concurrent use, closing.
func TestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		n := network.New()
		a, b, l := pair(t, n)
		c1, c2 = connect(t, b, l)
		return c1, c2, func() { a.Crash(); b.Crash() }, nil
	})
}

func TestDelayIsPerDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		_, b, l := pair(t, n)
		n.Delay("a", "b", 30*time.Millisecond)
		n.Delay("b", "a", 2*time.Millisecond)
		began := time.Now()
		atA, atB := connect(t, b, l)
		if took := time.Since(began); took != 32*time.Millisecond {
			t.Errorf("connecting took %v", took)
		}
		for _, way := range []struct {
			from, to net.Conn
			want     time.Duration
		}{{atA, atB, 30 * time.Millisecond}, {atB, atA, 2 * time.Millisecond}} {
			began := time.Now()
			write(t, way.from, "hello")
			read(t, way.to, "hello")
			if took := time.Since(began); took != way.want {
				t.Errorf("took %v, want %v", took, way.want)
			}
		}
		write(t, atA, "slow")
		n.Delay("a", "b", 0)
		write(t, atA, "fast") // and does not overtake
		read(t, atB, "slowfast")
	})
}

func TestCutHoldsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		_, b, l := pair(t, n)
		atA, atB := connect(t, b, l)
		n.Cut("b", "a")
		write(t, atB, "held back")
		write(t, atA, "not held back")
		read(t, atB, "not held back")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := b.Dial(ctx, "a:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dialing: %v", err)
		}
		_ = atA.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := atA.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("reading: %v", err)
		}
		_ = atA.SetReadDeadline(time.Time{})
		began := time.Now()
		time.AfterFunc(time.Minute, func() { n.Heal("b", "a") })
		read(t, atA, "held back")
		if took := time.Since(began); took != time.Minute {
			t.Errorf("took %v", took)
		}
	})
}

// A writer whose peer does not read, or cannot be reached, waits when the window is full.
func TestWindowIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		_, b, l := pair(t, n)
		_, atB := connect(t, b, l)
		_ = atB.SetWriteDeadline(time.Now().Add(time.Second))
		sent, err := atB.Write(make([]byte, 1<<20))
		if sent != 64<<10 || !isTimeout(err) {
			t.Errorf("sent %d: %v", sent, err)
		}
	})
}

func TestCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		a, b, l := pair(t, n)
		_, first := connect(t, b, l)
		n.Cut("a", "b")
		_, err := n.Host("a")
		if err == nil {
			t.Error("two hosts have one name")
		}
		a.Crash()
		_ = first.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := first.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("a host that is cut off has learned of a crash: %v", err)
		}
		_ = first.SetReadDeadline(time.Time{})
		n.Heal("a", "b")
		if _, err := first.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after a crash: %v", err)
		}
		if _, err := b.Dial(t.Context(), "a:1"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dialing: %v", err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("accepting: %v", err)
		}
		again := host(t, n, "a")
		if l, err = again.Listen(t.Context(), "a:1"); err != nil {
			t.Fatal(err)
		}
		atA, atB := connect(t, b, l)
		a.Crash() // the old one's, which must not harm the new one
		write(t, atA, "new")
		read(t, atB, "new")
	})
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		_, b, l := pair(t, n)
		other := host(t, n, "c")
		atA, atB := connect(t, b, l)
		otherA, atC := connect(t, other, l)
		n.Reset("b", "a")
		for _, c := range []net.Conn{atA, atB} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reading: %v", err)
			}
			if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("writing: %v", err)
			}
		}
		write(t, atC, "whole")
		read(t, otherA, "whole")
		connect(t, b, l)
	})
}

// What was written before Close arrives, and then the end.
func TestCloseIsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network.New()
		_, b, l := pair(t, n)
		atA, atB := connect(t, b, l)
		n.Delay("b", "a", time.Second)
		write(t, atB, "last words")
		if err := atB.Close(); err != nil {
			t.Error(err)
		}
		text, err := io.ReadAll(atA)
		if string(text) != "last words" || err != nil {
			t.Errorf("%q, %v", text, err)
		}
		if _, err := atA.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("writing to no connection: %v", err)
		}
	})
}

func TestListenRefuses(t *testing.T) {
	n := network.New()
	a, _, _ := pair(t, n)
	for _, at := range []string{"a:1", "b:1", "a", ""} {
		if l, err := a.Listen(t.Context(), at); err == nil {
			t.Errorf("listens at %q: %v", at, l.Addr())
		}
	}
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); string(b) != want || err != nil {
		t.Fatalf("%q, %v, want %q", b, err, want)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}
