package client

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Node asks one node and no other, by one call per question, and answers nothing by
// itself: what fails is an error with a gRPC status. It is for tools and for what
// Client has no methods for. It is safe for concurrent use: calls share a connection,
// which is made when first needed and remade after it broke.
//
// A call whose context has no deadline is given DefaultTimeout, or that of WithTimeout.
type Node struct {
	conn    *grpc.ClientConn
	lent    bool          // by a Client, which closes it
	timeout time.Duration // of a call whose context has no deadline
	limiter weirv1.RateLimiterClient
	cluster weirv1.ClusterClient
	health  weirv1.RateLimiterHealthClient
	config  weirv1.RateLimiterConfigClient
}

// NewNode returns a client of the node at addr, as host:port. It does not connect
// yet, so it fails only if addr or an option makes no sense. Of the options it heeds WithTimeout, WithTLS, WithAccessToken
// and WithDialer; without WithTLS the connection is not encrypted.
func NewNode(addr string, opts ...Option) (*Node, error) {
	o, err := readOptions(addr, opts)
	if err != nil {
		return nil, err
	}
	conn, err := connect(addr, o, nil)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", addr, err)
	}
	return newNode(conn, o.timeout), nil
}

func newNode(conn *grpc.ClientConn, timeout time.Duration) *Node {
	return &Node{
		conn:    conn,
		timeout: timeout,
		limiter: weirv1.NewRateLimiterClient(conn),
		cluster: weirv1.NewClusterClient(conn),
		health:  weirv1.NewRateLimiterHealthClient(conn),
		config:  weirv1.NewRateLimiterConfigClient(conn),
	}
}

// Check asks whether one request may go on, and counts it if so.
func (n *Node) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.limiter.CheckRateLimit(ctx, req)
}

// CheckBatch asks for up to 1000 independent requests at once. The answers stand
// in the order of the requests. One invalid request refuses the whole batch.
func (n *Node) CheckBatch(ctx context.Context, reqs []*weirv1.RateLimitRequest) ([]*weirv1.RateLimitResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	batch, err := n.limiter.CheckRateLimitBatch(ctx, &weirv1.RateLimitBatchRequest{Requests: reqs})
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
func (n *Node) Status(ctx context.Context, req *weirv1.RateLimitStatusRequest) (*weirv1.RateLimitStatusResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.limiter.GetRateLimitStatus(ctx, req)
}

// Explain tells how a request would be decided, and why, and counts nothing.
func (n *Node) Explain(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.ExplainRateLimitResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.limiter.ExplainRateLimit(ctx, req)
}

// Reset makes counters fresh ones.
func (n *Node) Reset(ctx context.Context, req *weirv1.ResetRateLimitRequest) (*weirv1.ResetRateLimitResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.health.ResetRateLimit(ctx, req)
}

// ExplainDescriptors tells how a request of Envoy would be decided, and why, and counts nothing.
func (n *Node) ExplainDescriptors(ctx context.Context, req *weirv1.DescriptorsRequest) (*weirv1.ExplainDescriptorsResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.limiter.ExplainDescriptors(ctx, req)
}

// ResetDescriptors makes the counters fresh ones that descriptors lead to.
func (n *Node) ResetDescriptors(ctx context.Context, req *weirv1.DescriptorsRequest) (*weirv1.ResetRateLimitResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.health.ResetDescriptors(ctx, req)
}

// Health returns what the asked node says of itself.
func (n *Node) Health(ctx context.Context) (*weirv1.GetHealthStatusResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.health.GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{})
}

// ListNodes returns the nodes of the cluster as the asked node sees them.
func (n *Node) ListNodes(ctx context.Context) (*weirv1.ListNodesResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.cluster.ListNodes(ctx, &weirv1.ListNodesRequest{})
}

// ImportView has the asked node write what it knows of the cluster into an etcd that has lost it,
// or say what it would write.
func (n *Node) ImportView(ctx context.Context, dryRun bool) (*weirv1.ImportViewResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.cluster.ImportView(ctx, &weirv1.ImportViewRequest{DryRun: dryRun})
}

// DrainNode has the asked node, whose id it must be, hand over what it holds, or take partitions
// again.
func (n *Node) DrainNode(ctx context.Context, id string, cancel bool) (*weirv1.DrainNodeResponse, error) {
	ctx, done := n.bound(ctx)
	defer done()
	return n.cluster.DrainNode(ctx, &weirv1.DrainNodeRequest{NodeId: id, Cancel: cancel})
}

// ListTopKeys returns the keys with the most checks or denials, over all nodes. The timeout should be above the 500 ms
// for which the asked node waits for the others.
func (n *Node) ListTopKeys(ctx context.Context, req *weirv1.ListTopKeysRequest) (*weirv1.ListTopKeysResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.cluster.ListTopKeys(ctx, req)
}

// GetRuleCounts returns how a rule has decided the checks that the asked node was asked for. An empty domain means "default".
func (n *Node) GetRuleCounts(ctx context.Context, domain, rule string) (*weirv1.GetRuleCountsResponse, error) {
	ctx, done := n.bound(ctx)
	defer done()
	return n.cluster.GetRuleCounts(ctx, &weirv1.GetRuleCountsRequest{Domain: domain, RuleId: rule})
}

// GetOptions returns the options with which the asked node runs, without secrets.
func (n *Node) GetOptions(ctx context.Context) (*weirv1.GetOptionsResponse, error) {
	ctx, done := n.bound(ctx)
	defer done()
	return n.cluster.GetOptions(ctx, &weirv1.GetOptionsRequest{})
}

// ListAudit returns the last changes that the asked node was asked for, the oldest first.
func (n *Node) ListAudit(ctx context.Context) (*weirv1.ListAuditResponse, error) {
	ctx, done := n.bound(ctx)
	defer done()
	return n.cluster.ListAudit(ctx, &weirv1.ListAuditRequest{})
}

// CreateAccessToken stores an access token, of which the SHA-256 is digest, for all nodes of the cluster.
func (n *Node) CreateAccessToken(ctx context.Context, name, roles string, digest []byte) error {
	ctx, done := n.bound(ctx)
	defer done()
	_, err := n.cluster.CreateAccessToken(ctx, &weirv1.CreateAccessTokenRequest{Name: name, Roles: roles, Digest: digest})
	return err
}

// ListAccessTokens returns the access tokens of the cluster that are in force on the asked node.
func (n *Node) ListAccessTokens(ctx context.Context) (*weirv1.ListAccessTokensResponse, error) {
	ctx, done := n.bound(ctx)
	defer done()
	return n.cluster.ListAccessTokens(ctx, &weirv1.ListAccessTokensRequest{})
}

// RevokeAccessToken removes an access token of the cluster.
func (n *Node) RevokeAccessToken(ctx context.Context, name string) error {
	ctx, done := n.bound(ctx)
	defer done()
	_, err := n.cluster.RevokeAccessToken(ctx, &weirv1.RevokeAccessTokenRequest{Name: name})
	return err
}

// RemoveNode takes a dead member out of the view.
func (n *Node) RemoveNode(ctx context.Context, id string) (*weirv1.RemoveNodeResponse, error) {
	ctx, done := n.bound(ctx)
	defer done()
	return n.cluster.RemoveNode(ctx, &weirv1.RemoveNodeRequest{NodeId: id})
}

// GetRing returns who owns how much, and with tables who owns what.
func (n *Node) GetRing(ctx context.Context, tables bool) (*weirv1.GetRingResponse, error) {
	ctx, cancel := n.bound(ctx)
	defer cancel()
	return n.cluster.GetRing(ctx, &weirv1.GetRingRequest{Tables: tables})
}

// Config returns the service that reads and changes the rules, on the same
// connection. Its calls have the deadlines of their contexts only.
func (n *Node) Config() weirv1.RateLimiterConfigClient { return n.config }

// Close breaks off the calls under way and ends the connection. Calls after it
// fail. The connection of a node that a Client returned stays.
func (n *Node) Close() error {
	if n.lent {
		return nil
	}
	return n.conn.Close()
}

// bound gives ctx a deadline if it has none.
func (n *Node) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, n.timeout)
}
