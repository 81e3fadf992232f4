package client

import (
	"context"
	"fmt"
	"net"
	"time"
)

// DefaultTimeout bounds a check whose context has no deadline. A caller that asks
// before it serves can hardly wait longer.
const DefaultTimeout = 100 * time.Millisecond

// maxConnections bounds WithConnections.
const maxConnections = 8

// Dialer opens a connection to an address, as host:port.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

type options struct {
	seeds       []string
	timeout     time.Duration
	dial        Dialer
	connections int
	discover    bool
	failClosed  bool
	withLeases  bool
}

// Option changes what New would do by default.
type Option func(*options) error

// WithSeeds names further nodes to begin with, each as host:port, in case that the
// first is not there.
func WithSeeds(addresses ...string) Option {
	return func(o *options) error {
		o.seeds = append(o.seeds, addresses...)
		return nil
	}
}

// WithTimeout bounds every check whose context has no deadline, instead of
// DefaultTimeout. It must be positive.
func WithTimeout(timeout time.Duration) Option {
	return func(o *options) error {
		if timeout <= 0 {
			return fmt.Errorf("timeout %v is not positive", timeout)
		}
		o.timeout = timeout
		return nil
	}
}

// WithConnections opens so many connections to each node, 1 to 8, instead of one. More
// than one helps a client that keeps a processor busy with a single connection, and
// makes batches smaller.
func WithConnections(perNode int) Option {
	return func(o *options) error {
		if perNode < 1 || perNode > maxConnections {
			return fmt.Errorf("connections %d are not between 1 and %d", perNode, maxConnections)
		}
		o.connections = perNode
		return nil
	}
}

// WithoutDiscovery asks the seeds only, and does not look for other nodes. It is for
// seeds that are load balancers.
func WithoutDiscovery() Option {
	return func(o *options) error {
		o.discover = false
		return nil
	}
}

// WithFailClosed denies what no node answers in time, instead of letting it through.
func WithFailClosed() Option {
	return func(o *options) error {
		o.failClosed = true
		return nil
	}
}

// WithLeases decides checks of keys that are asked for often from tokens that a node
// has lent, without asking. The package documentation says what that means.
func WithLeases() Option {
	return func(o *options) error {
		o.withLeases = true
		return nil
	}
}

// WithDialer makes connections by dial, for tunnels and tests. Names are not looked up
// before.
func WithDialer(dial Dialer) Option {
	return func(o *options) error {
		if dial == nil {
			return fmt.Errorf("dialer is nil")
		}
		o.dial = dial
		return nil
	}
}

// readOptions checks all that can be checked.
func readOptions(addr string, opts []Option) (options, error) {
	o := options{seeds: []string{addr}, timeout: DefaultTimeout, connections: 1, discover: true}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return o, err
		}
	}
	for _, seed := range o.seeds {
		if err := validAddress(seed); err != nil {
			return o, err
		}
	}
	if len(o.seeds) > maxNodes {
		return o, fmt.Errorf("%d seeds are more than %d", len(o.seeds), maxNodes)
	}
	return o, nil
}
