package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
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
	token       string // an access token, shown with every call; empty: none
	connections int
	discover    bool
	failClosed  bool
	withLeases  bool
	cluster     string                       // "" to learn it
	tls         *tls.Config                  // nil: not encrypted
	traceparent func(context.Context) string // of a call; nil: none
}

var isFingerprint = regexp.MustCompile("^[0-9a-f]{16}$")

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

// WithCluster names the cluster by its fingerprint, which GET /v1/health has as "cluster". Nodes of another
// cluster are not used, at any address. Without it the client learns the cluster from the nodes that it
// reaches.
func WithCluster(fingerprint string) Option {
	return func(o *options) error {
		if !isFingerprint.MatchString(fingerprint) {
			return fmt.Errorf("cluster %q is not 16 hexadecimal digits", fingerprint)
		}
		o.cluster = fingerprint
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

// WithTLS encrypts connections by config, which is not changed: RootCAs is the CA of the cluster,
// and Certificates has this client's, if nodes want one. Nodes speak TLS 1.3.
func WithTLS(config *tls.Config) Option {
	return func(o *options) error {
		if config == nil {
			return errors.New("TLS configuration is nil")
		}
		o.tls = config
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
	if o.token != "" && o.tls == nil {
		return o, errors.New("an access token would be sent unencrypted: WithAccessToken needs WithTLS")
	}
	return o, nil
}
