package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// Server is an etcd of one member in this process. Its methods may be called
// from several goroutines.
type Server struct {
	endpoint string
	member   *member
	front    *front // nil without TLS

	close sync.Once
	stop  chan struct{} // closed by Close
	done  chan struct{} // closed when supervise has ended etcd
	errs  chan error    // one at most; closed by Close
}

// StartServer runs an etcd and returns when it answers, or within 5 s with an
// error that says in one sentence what is wrong where. The data of an earlier
// run in the same directory are kept.
//
// ctx bounds the start only; Close ends the server.
func StartServer(ctx context.Context, cfg ServerConfig) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if ctx.Err() != nil { // before there is something that cannot be interrupted
		return nil, startError(cfg, notReady(ctx))
	}
	host, port, err := resolveListen(ctx, cfg.Listen)
	if err != nil {
		return nil, err
	}
	lock, err := claimDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	m := &member{lock: lock, words: newLastWords()}
	s := &Server{
		member: m,
		stop:   make(chan struct{}),
		done:   make(chan struct{}),
		errs:   make(chan error, 1),
	}
	inner, innerPort := host, port
	if cfg.TLS != nil {
		if s.front, err = listenTLS(ctx, net.JoinHostPort(host, port), cfg); err != nil {
			lock.Close()
			return nil, startError(cfg, err)
		}
		inner, innerPort = "127.0.0.1", "0"
	}
	if err := m.start(ctx, inner, innerPort, cfg); err != nil {
		s.front.close()
		return nil, err
	}
	s.endpoint = reachable(m.etcd.Clients[0].Addr(), inner)
	s.front.serve(s.endpoint)
	go s.supervise()
	return s, nil
}

// Endpoint returns where this process reaches the server, as host:port.
func (s *Server) Endpoint() string { return s.endpoint }

// Address returns where others reach the server, as host:port, with TLS if that was configured.
func (s *Server) Address() string {
	if s.front == nil {
		return s.endpoint
	}
	return s.front.listener.Addr().String()
}

// Err returns a channel that yields one error if the server dies by itself, as
// when its disk is full. Close closes it.
func (s *Server) Err() <-chan error { return s.errs }

// Close ends the server and waits for that. Open watches are cut at once. It may
// be called again.
func (s *Server) Close() {
	s.close.Do(func() {
		close(s.stop)
		<-s.done
		close(s.errs)
	})
}

// supervise reports the first sign that etcd has died, and ends what is left of it: that
// still answers those that read, with nothing new, and so seems to be well.
func (s *Server) supervise() {
	defer close(s.done)
	defer s.member.close()
	defer s.front.close()
	var err error
	select {
	case <-s.stop:
		return
	case <-s.member.words.spoken:
		err = s.member.words.err()
	case err = <-s.member.etcd.Err():
	case <-s.member.etcd.Server.StopNotify():
		err = errors.New("stopped by itself")
	}
	s.errs <- fmt.Errorf("etcd on %s: %w", s.endpoint, err)
}

// resolveListen splits host:port, with the host as an IP: embed takes no names.
func resolveListen(ctx context.Context, listen string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(listen)
	if err != nil {
		return "", "", fmt.Errorf("etcd: listen on %q: not host:port", listen)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || port != strconv.FormatUint(n, 10) {
		return "", "", fmt.Errorf("etcd: listen on %q: port %q is not between 0 and 65535", listen, port)
	}
	if host == "" {
		return "0.0.0.0", port, nil
	}
	if net.ParseIP(host) != nil {
		return host, port, nil
	}
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return "", "", fmt.Errorf("etcd: listen on %q: no such host", listen)
	}
	// IPv4 first: "localhost" as ::1 would surprise callers that dial 127.0.0.1.
	best := addrs[0].IP
	for _, a := range addrs {
		if a.IP.To4() != nil {
			best = a.IP
			break
		}
	}
	return best.String(), port, nil
}

// reachable returns bound as an address to dial: one cannot dial 0.0.0.0
// everywhere.
func reachable(bound net.Addr, host string) string {
	_, port, _ := net.SplitHostPort(bound.String())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// claimDir creates dir if need be and takes it for this process until the lock
// is closed.
func claimDir(dir string) (*fileutil.LockedFile, error) {
	if dir == "" {
		return nil, errors.New("etcd: data directory is not given")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, dirError(dir, err)
	}
	lock, err := takeDir(dir)
	if err != nil {
		return nil, dirError(dir, err)
	}
	if err := probeBackend(dir); err != nil {
		lock.Close()
		return nil, dirError(dir, err)
	}
	return lock, nil
}
