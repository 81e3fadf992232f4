package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
)

// Config says which etcd a registry uses and how.
type Config struct {
	// Endpoints of the etcd cluster, as host:port, at least one.
	Endpoints []string
	// Cluster names the cluster in etcd: 1 to 64 bytes of letters, digits, '.',
	// '_' and '-'.
	Cluster string
	// LeaseTTL is how long the node's key outlives its last renewal, 2 s to
	// 10 min, rounded up to seconds. 0 means DefaultLeaseTTL.
	LeaseTTL time.Duration
	// Dial connects to an endpoint. Nil means by TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Credentials secure connections. Nil means not to.
	Credentials credentials.TransportCredentials
	// User and Password are those of an etcd with authentication. Empty means none.
	User, Password string
	// Known is what the node knows from an earlier run, nil if it knows nothing. What etcd
	// has must not be less.
	Known *Known
	// Wait is how long Open waits for the first answer, if nothing is known. 0 means DefaultWait.
	Wait time.Duration
	// Logger gets one line per change of state. Nil means none.
	Logger *slog.Logger
	// Metrics takes the metrics, until Close. Nil means none.
	Metrics prometheus.Registerer
}

func (c *Config) validate() error {
	if len(c.Endpoints) == 0 || len(c.Endpoints) > MaxEndpoints || slices.Contains(c.Endpoints, "") {
		return fmt.Errorf("etcd: endpoints %q are not 1 to %d addresses", c.Endpoints, MaxEndpoints)
	}
	if err := checkName("cluster", c.Cluster, maxClusterName); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.LeaseTTL < minLeaseTTL || c.LeaseTTL > maxLeaseTTL {
		return fmt.Errorf("etcd: lease of %v is not %v to %v long", c.LeaseTTL, minLeaseTTL, maxLeaseTTL)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Endpoints = slices.Clone(c.Endpoints)
	return nil
}
