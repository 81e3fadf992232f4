package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// EtcdCredentials secures the connections to an etcd. They read the files for each connection, so that new ones are in
// force without a restart. A file that cannot be read leaves what was read before in force, which is logged. Without a
// files.CA, servers are verified by the CAs of the system.
func EtcdCredentials(files Files, log *slog.Logger) (credentials.TransportCredentials, error) {
	c := &etcdCredentials{files: files, log: log}
	if err := c.read(); err != nil {
		return nil, err
	}
	return c, nil
}

// etcdCredentials has what connections to an etcd are made with.
type etcdCredentials struct {
	files Files
	log   *slog.Logger

	mu   sync.Mutex
	last credentials.TransportCredentials // guarded by mu; by the files that could be read last
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *etcdCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.reread().ClientHandshake(ctx, authority, conn)
	if err != nil {
		return nil, nil, err
	}
	return refusedConn{secured}, info, nil
}

// reread returns credentials by what the files have now or, if they cannot be used, had before.
func (c *etcdCredentials) reread() credentials.TransportCredentials {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.read(); err != nil {
		c.log.Error("certificate for etcd not read again: the one before stays in force", "error", err)
	}
	return c.last
}

// ServerHandshake implements credentials.TransportCredentials. No server has these.
func (*etcdCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials of a client")
}

// Info implements credentials.TransportCredentials.
func (c *etcdCredentials) Info() credentials.ProtocolInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last.Info()
}

// Clone implements credentials.TransportCredentials.
func (c *etcdCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials. Nothing calls it.
func (*etcdCredentials) OverrideServerName(string) error { return errors.New("not supported") }

// read reads the files, all or none.
func (c *etcdCredentials) read() error {
	config := &tls.Config{MinVersion: tls.VersionTLS12} // an etcd may be set to no more
	pair, err := c.files.pair("etcd")
	if pair != nil {
		config.Certificates = []tls.Certificate{*pair}
	}
	if err == nil && c.files.CA != "" {
		config.RootCAs, err = c.files.pool("etcd")
	}
	if err == nil {
		c.last = credentials.NewTLS(config)
	}
	return err
}
