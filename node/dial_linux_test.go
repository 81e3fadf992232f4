package node

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A connection to another node on which packets are lost is given up before TCP's pauses become long. TCP alone would try for a
// quarter of an hour.
func TestConnectionsThatLosePacketsAreGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := Network{}.dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	other, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	loseAll(t, other.(*net.TCPConn))
	if _, err := conn.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("the connection ended with %v, want %v", err, syscall.ETIMEDOUT)
	}
}

// loseAll has a socket lose all that comes, before TCP sees it.
func loseAll(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	none := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // keeps no byte
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &none})
	})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}
