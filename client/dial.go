package client

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

func validAddress(addr string) error {
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return fmt.Errorf("address %q is not host:port", addr)
	}
	return nil
}

// Times of connections.
const (
	firstPause     = 100 * time.Millisecond // before connecting again
	longestPause   = 2 * time.Second        // by default it would be two minutes
	connectTimeout = time.Second
	pingSilent     = 10 * time.Second // a node cuts off a client that pings twice as often
	pongTimeout    = 3 * time.Second  // then the connection is dead
)

// connect returns a connection as o says, by its dialer and with its TLS. Unless note is nil it is called when TLS fails: with
// the reason if the node refuses this client or this client the node, and with nil if that is not known.
func connect(addr string, o options, note func(error)) (*grpc.ClientConn, error) {
	secured := insecure.NewCredentials()
	dial := o.dial
	if o.tls != nil {
		secured = credentials.NewTLS(o.tls)
	}
	if o.tls != nil && note != nil {
		secured = notedTLS{secured, note}
		if dial == nil {
			dial = func(ctx context.Context, address string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			}
		}
		dial = notedDialer(dial, note)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secured),
		// A node is next door: neither a proxy nor a look-up of a service
		// configuration in DNS belongs on the path of every request.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestPause},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingSilent, Timeout: pongTimeout}),
	}
	if o.traceparent != nil {
		options = append(options, grpc.WithUnaryInterceptor(o.traceCall))
	}
	if o.token != "" {
		options = append(options, grpc.WithPerRPCCredentials(newBearer(o.token)))
	}
	target := "dns:///" + addr
	if o.dial != nil {
		target = "passthrough:///" + addr // what a name means is the dialer's business
	}
	if dial != nil {
		options = append(options, grpc.WithContextDialer(dial))
	}
	return grpc.NewClient(target, options...)
}
