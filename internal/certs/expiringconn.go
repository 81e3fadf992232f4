package certs

import (
	"crypto/tls"
	"crypto/x509"
	"sync"
	"time"
)

const (
	// endAfter is how long a connection goes on whose certificate a new CA file refuses, so that the other node can renew it.
	endAfter = 5 * time.Second
	// renewBefore is how long before the end of a certificate a connection between nodes is renewed. It is half of what is left, if that is less.
	renewBefore = time.Minute
)

// provenConn is a connection whose other end has shown a certificate. It ends when a new one would be refused: when that certificate expires,
// or soon after its CA is no longer in force. The other end connects again with the certificate that it has then.
type provenConn struct {
	*tls.Conn
	source  *Source
	made    *material           // of this end
	chain   []*x509.Certificate // that the other end has shown
	use     x509.ExtKeyUsage    // by the other end
	renewAt time.Time
	end     *time.Timer // closes it; set under the mu of openConns
}

// openConns are the connections that have not been closed. The zero value has none. It is safe for concurrent use.
type openConns struct {
	mu  sync.Mutex
	all map[*provenConn]struct{} // guarded by mu
}

// prove returns conn, which was made with m, as one that ends with the certificate of the other end.
func (s *Source) prove(conn *tls.Conn, m *material, use x509.ExtKeyUsage) *provenConn {
	c := &provenConn{Conn: conn, source: s, made: m, chain: conn.ConnectionState().PeerCertificates, use: use}
	expires, now := c.chain[0].NotAfter, time.Now()
	lasts := expires.Sub(now)
	if m.cert.Leaf.NotAfter.Before(expires) {
		expires = m.cert.Leaf.NotAfter
	}
	left := expires.Sub(now)
	c.renewAt = now.Add(left - min(renewBefore, left/2))
	s.open.mu.Lock()
	if s.open.all == nil {
		s.open.all = make(map[*provenConn]struct{})
	}
	c.end = time.AfterFunc(lasts, func() { _ = c.Close() })
	s.open.all[c] = struct{}{}
	s.open.mu.Unlock()
	if now := s.current.Load(); now != m { // the files have changed during the handshake
		c.endIfRefused(now)
	}
	return c
}

// endRefused has connections end whose certificates m refuses.
func (o *openConns) endRefused(m *material) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.all {
		c.endIfRefused(m)
	}
}

func (c *provenConn) endIfRefused(m *material) {
	if _, err := verify(c.chain[0], c.chain[1:], m.pool, c.use); err != nil {
		c.end.Reset(min(endAfter, time.Until(c.chain[0].NotAfter)))
	}
}

// IsOutdated reports whether a new connection to that node is to take the place of this one: this node has other certificates
// now, or the certificate of one of both ends expires soon.
func (c *provenConn) IsOutdated() bool {
	return c.source.current.Load() != c.made || !time.Now().Before(c.renewAt)
}

// Close implements net.Conn.
func (c *provenConn) Close() error {
	c.source.open.mu.Lock()
	c.end.Stop()
	delete(c.source.open.all, c)
	c.source.open.mu.Unlock()
	return c.Conn.Close()
}
