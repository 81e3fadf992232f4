package certs

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"time"
)

// httpConns are the connections of HTTP whose clients have shown a certificate, by the connection below TLS. They are no provenConns, as
// http.Server serves HTTP/2 on a *tls.Conn only. The zero value has none. It is safe for concurrent use.
type httpConns struct {
	mu  sync.Mutex
	all map[net.Conn]*httpConn // guarded by mu
}

type httpConn struct {
	chain []*x509.Certificate // that the client has shown
	end   *time.Timer         // closes the connection; nil as long as its CA is in force
}

func (h *httpConns) add(conn net.Conn, chain []*x509.Certificate) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = make(map[net.Conn]*httpConn)
	}
	h.all[conn] = &httpConn{chain: chain}
}

func (h *httpConns) drop(conn net.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.all[conn]; c != nil && c.end != nil {
		c.end.Stop()
	}
	delete(h.all, conn)
}

// endRefused has connections end, endAfter from now, whose certificates m refuses.
func (h *httpConns) endRefused(m *material) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for conn, c := range h.all {
		if c.end != nil {
			continue
		}
		if _, err := verify(c.chain[0], c.chain[1:], m.pool, x509.ExtKeyUsageClientAuth); err != nil {
			c.end = time.AfterFunc(endAfter, func() { _ = conn.Close() })
		}
	}
}

// verifyHTTP returns verify, which keeps the connections of HTTP that it accepts, made with m, until Closed.
func (s *Source) verifyHTTP(conn net.Conn, m *material, verify func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		if err := verify(state); err != nil || len(state.PeerCertificates) == 0 {
			return err
		}
		s.http.add(conn, state.PeerCertificates)
		if now := s.current.Load(); now != m { // the files have changed during the handshake
			s.http.endRefused(now)
		}
		return nil
	}
}

// Closed says that a connection of HTTP has ended.
func (s *Source) Closed(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok {
		s.http.drop(c.NetConn())
	}
}
