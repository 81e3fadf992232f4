// Package client provides the Go client of Weir.
//
//	weir, err := client.New("127.0.0.1:9090") // any node; connects at the first call
//	defer weir.Close()
//	answer, err := weir.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
//
// A denied check is an answer with Allowed = false. An error means that there is
// no answer; it carries a gRPC status, so status.Code tells what happened.
package client

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// DefaultTimeout bounds a call whose context has no deadline. A caller that asks
// before it serves can hardly wait longer.
const DefaultTimeout = 100 * time.Millisecond

// Client asks one node, which answers for its whole cluster. It is safe for
// concurrent use, and one per process is enough: calls share a connection, which
// is made when first needed and remade after it broke.
type Client struct {
	conn    *grpc.ClientConn
	limiter weirv1.RateLimiterClient
	cluster weirv1.ClusterClient
	health  weirv1.RateLimiterHealthClient
	config  weirv1.RateLimiterConfigClient
	timeout time.Duration
}

// Option changes what New would do by default.
type Option func(*Client) error

// WithTimeout bounds every call whose context has no deadline, instead of
// DefaultTimeout. It must be positive.
func WithTimeout(timeout time.Duration) Option {
	return func(c *Client) error {
		if timeout <= 0 {
			return fmt.Errorf("timeout %v is not positive", timeout)
		}
		c.timeout = timeout
		return nil
	}
}

// New returns a client of the node at addr, as host:port. It does not connect
// yet, so it fails only if addr or an option makes no sense. The connection is
// not encrypted.
func New(addr string, opts ...Option) (*Client, error) {
	if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("address %q is not host:port", addr)
	}
	c := &Client{timeout: DefaultTimeout}
	for _, opt := range opts {
		if err := opt(c); err != nil {
			return nil, fmt.Errorf("client of %s: %w", addr, err)
		}
	}
	conn, err := grpc.NewClient("dns:///"+addr,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		// A node is next door: neither a proxy nor a look-up of a service
		// configuration in DNS belongs on the path of every request.
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		// By default gRPC tries again only after up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: time.Second,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", addr, err)
	}
	c.conn = conn
	c.limiter = weirv1.NewRateLimiterClient(conn)
	c.cluster = weirv1.NewClusterClient(conn)
	c.health = weirv1.NewRateLimiterHealthClient(conn)
	c.config = weirv1.NewRateLimiterConfigClient(conn)
	return c, nil
}

// Check asks whether one request may go on, and counts it if so.
func (c *Client) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.limiter.CheckRateLimit(ctx, req)
}

// CheckBatch asks for up to 1000 independent requests at once. The answers stand
// in the order of the requests. One invalid request refuses the whole batch.
func (c *Client) CheckBatch(ctx context.Context, reqs []*weirv1.RateLimitRequest) ([]*weirv1.RateLimitResponse, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	batch, err := c.limiter.CheckRateLimitBatch(ctx, &weirv1.RateLimitBatchRequest{Requests: reqs})
	if err != nil {
		return nil, err
	}
	// Callers index the answers by their requests.
	if got, want := len(batch.GetResponses()), len(reqs); got != want {
		return nil, fmt.Errorf("check %d requests: got %d answers", want, got)
	}
	return batch.GetResponses(), nil
}

// Status returns the counters of an identifier across all rules, and counts nothing.
func (c *Client) Status(ctx context.Context, req *weirv1.RateLimitStatusRequest) (*weirv1.RateLimitStatusResponse, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.limiter.GetRateLimitStatus(ctx, req)
}

// Explain tells how a request would be decided, and why, and counts nothing.
func (c *Client) Explain(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.ExplainRateLimitResponse, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.limiter.ExplainRateLimit(ctx, req)
}

// Reset makes counters fresh ones.
func (c *Client) Reset(ctx context.Context, req *weirv1.ResetRateLimitRequest) (*weirv1.ResetRateLimitResponse, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.health.ResetRateLimit(ctx, req)
}

// Health returns what the asked node says of itself.
func (c *Client) Health(ctx context.Context) (*weirv1.GetHealthStatusResponse, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.health.GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{})
}

// ListNodes returns the nodes of the cluster as the asked node sees them.
func (c *Client) ListNodes(ctx context.Context) (*weirv1.ListNodesResponse, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.cluster.ListNodes(ctx, &weirv1.ListNodesRequest{})
}

// GetRing returns who owns how much, and with tables who owns what.
func (c *Client) GetRing(ctx context.Context, tables bool) (*weirv1.GetRingResponse, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return c.cluster.GetRing(ctx, &weirv1.GetRingRequest{Tables: tables})
}

// Config returns the service that reads and changes the rules, on the same
// connection. Its calls have the deadlines of their contexts only.
func (c *Client) Config() weirv1.RateLimiterConfigClient { return c.config }

// Close breaks off the calls under way and ends the connection. Calls after it
// fail.
func (c *Client) Close() error { return c.conn.Close() }

// bound gives ctx a deadline if it has none.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, c.timeout)
}
