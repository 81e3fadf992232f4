package node

import (
	"context"
	"net"
)

// Network is what a node listens and dials on. The zero value is TCP. An etcd that the
// node runs itself is on TCP in any case.
type Network struct {
	// Listen listens at an address of Options.
	Listen func(ctx context.Context, address string) (net.Listener, error)
	// Dial connects to a node or to an etcd.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

func (n Network) listen(ctx context.Context, address string) (net.Listener, error) {
	if n.Listen != nil {
		return n.Listen(ctx, address)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

func (n Network) dial(ctx context.Context, address string) (net.Conn, error) {
	if n.Dial != nil {
		return n.Dial(ctx, address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}
