package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// AccessError says that no node takes a check of this client: all of them refuse its certificate or its access token, or TLS
// with them fails. Such a check is never allowed undecided, since that would go on unnoticed.
type AccessError struct {
	// Address is that of one of the nodes.
	Address string
	// Reason is an error with the gRPC status UNAUTHENTICATED or PERMISSION_DENIED, or what TLS has failed by.
	Reason error
}

// Error names a node and the reason.
func (e *AccessError) Error() string {
	var op *net.OpError
	var header tls.RecordHeaderError
	var certificate *tls.CertificateVerificationError
	switch {
	case isRefusal(e.Reason):
		return fmt.Sprintf("%s refuses this client: %s", e.Address, status.Convert(e.Reason).Message())
	case errors.As(e.Reason, &certificate):
		return fmt.Sprintf("the certificate of %s is not valid: %v", e.Address, e.Reason)
	case errors.As(e.Reason, &header):
		return fmt.Sprintf("%s has no TLS: leave WithTLS out", e.Address)
	case errors.As(e.Reason, &op) && op.Op == remoteError:
		return fmt.Sprintf("%s refuses this client's certificate, or wants one: %v", e.Address, e.Reason)
	}
	return fmt.Sprintf("TLS with %s: %v", e.Address, e.Reason)
}

// Unwrap returns the reason.
func (e *AccessError) Unwrap() error { return e.Reason }

// isRefusal reports whether a node has refused a call because the caller lacks the role for it. It has counted nothing then.
func isRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.Unauthenticated || code == codes.PermissionDenied
}

// isAccess reports whether a check has failed because nodes refuse the caller.
func isAccess(err error) bool {
	var access *AccessError
	return errors.As(err, &access) || isRefusal(err)
}

// refusal returns the error of one of the nodes, if all of them have refused this client last, and otherwise nil.
func (c *Client) refusal() *AccessError {
	var first *AccessError
	for _, via := range *c.conns.Load() {
		refusal := via.member.refusal.Load()
		if refusal == nil {
			return nil
		}
		if first == nil {
			first = refusal
		}
	}
	return first
}

// noteEnd notes why a stream has ended, and what that says of the access of this client. The end of a connection says nothing: a node
// ends it after it has refused a certificate.
func (c *Client) noteEnd(m *member, err error) {
	m.setProblem(err)
	switch {
	case isRefusal(err):
		c.note(m, err)
	case status.Code(err) != codes.Unavailable:
		c.note(m, nil)
	}
}

// note sets why a node refuses this client, or, with nil, that it is not known to, and wakes the checks that wait for a node.
func (c *Client) note(m *member, reason error) {
	if reason == nil {
		m.refusal.Store(nil)
		return
	}
	m.refusal.Store(&AccessError{Address: m.address, Reason: reason})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wakeLocked()
}

// wakeLocked has the checks look again that wait for a node.
func (c *Client) wakeLocked() {
	close(c.seen)
	c.seen = make(chan struct{})
}

// remoteError is the operation of an error that the other end of a connection has sent by TLS.
const remoteError = "remote error"

// notedTLS are credentials that say why connections fail: note is called with a refusal, and with nil if it cannot be
// known.
type notedTLS struct {
	credentials.TransportCredentials
	note func(error)
}

// ClientHandshake implements credentials.TransportCredentials.
func (c notedTLS) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		if isLoss(err) {
			c.note(nil)
		} else {
			c.note(err)
		}
		return nil, nil, err
	}
	return notedConn{secured, c.note}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c notedTLS) Clone() credentials.TransportCredentials {
	return notedTLS{c.TransportCredentials.Clone(), c.note}
}

// isLoss reports whether a handshake has failed because the connection was lost, or there was no time.
func isLoss(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op != remoteError && op.Op != "local error"
	}
	var network net.Error
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network) && network.Timeout()
}

// notedConn is a connection by TLS. With TLS 1.3 a client is done with its handshake before the node has verified its
// certificate, so a refusal is read later.
type notedConn struct {
	net.Conn
	note func(error)
}

// Read implements net.Conn.
func (c notedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	var op *net.OpError
	if err != nil && errors.As(err, &op) && op.Op == remoteError {
		c.note(err)
	}
	return n, err
}

// notedDialer is a dialer that calls note with nil if there is no connection.
func notedDialer(dial Dialer, note func(error)) Dialer {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, address)
		if err != nil {
			note(nil)
		}
		return conn, err
	}
}
