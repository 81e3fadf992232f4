package etcd

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Bounds of the connections that a front takes.
const (
	maxFrontConns    = 1024
	handshakeTimeout = 10 * time.Second
)

// front takes the connections of an etcd's clients by TLS, and passes on what they say to the etcd in this process. An
// etcd can verify clients by their CA only; a front by all that a tls.Config says, as it is at the time.
type front struct {
	listener net.Listener
	config   *tls.Config
	log      *slog.Logger

	stop  context.CancelFunc
	conns sync.WaitGroup // the goroutines of serve
}

// listenTLS takes the address for a front.
func listenTLS(ctx context.Context, address string, cfg ServerConfig) (*front, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &front{listener: netutil.LimitListener(listener, maxFrontConns), config: cfg.TLS, log: log, stop: func() {}}, nil
}

// serve passes connections on to the endpoint until close. f may be nil.
func (f *front) serve(endpoint string) {
	if f == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	f.conns.Go(func() {
		for {
			conn, err := f.listener.Accept()
			if ctx.Err() != nil {
				if err == nil {
					_ = conn.Close()
				}
				return
			}
			if err != nil { // such as no file descriptor left
				sleep(ctx, minPause)
				continue
			}
			f.conns.Go(func() { f.pass(ctx, conn, endpoint) })
		}
	})
}

// pass connects the other end of a connection to the endpoint, until either of them or ctx ends.
func (f *front) pass(ctx context.Context, conn net.Conn, endpoint string) {
	secured := tls.Server(conn, f.config)
	defer func() { _ = secured.Close() }()
	handshake, cancel := context.WithTimeout(ctx, handshakeTimeout)
	err := secured.HandshakeContext(handshake)
	cancel()
	if err != nil {
		f.log.Warn("a client of etcd was refused", "address", conn.RemoteAddr().String(), "error", err)
		return
	}
	inner, err := new(net.Dialer).DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return // etcd is ending
	}
	end := func() { _, _ = secured.NetConn().Close(), inner.Close() }
	defer context.AfterFunc(ctx, end)()
	var ways sync.WaitGroup
	for _, way := range [][2]net.Conn{{inner, secured}, {secured, inner}} {
		ways.Go(func() {
			_, _ = io.Copy(way[0], way[1]) // both ends say themselves why they end
			end()
		})
	}
	ways.Wait()
}

// close ends all connections, and waits for that. f may be nil, and may not have served.
func (f *front) close() {
	if f == nil {
		return
	}
	f.stop()
	_ = f.listener.Close()
	f.conns.Wait()
}
