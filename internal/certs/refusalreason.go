package certs

import (
	"errors"
	"net"
	"syscall"
)

// refusedConn is a client's end of a connection by TLS. A client of TLS 1.3 is done with its handshake before the server
// has verified its certificate, so a refusal is read later. If a write fails first, because the server has closed the
// connection, its error is that refusal.
type refusedConn struct{ net.Conn }

// Write implements net.Conn.
func (c refusedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		return n, err
	}
	// The connection is closed: what has arrived can be read, and a read does not wait.
	_, reason := c.Read(make([]byte, 1))
	if op := (*net.OpError)(nil); errors.As(reason, &op) && op.Op == "remote error" {
		err = reason
	}
	return n, err
}
