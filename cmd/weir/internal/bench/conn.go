package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// The modes: which call asks.
const (
	Unary  = "unary"  // CheckRateLimit: one check
	Batch  = "batch"  // CheckRateLimitBatch
	Stream = "stream" // StreamRateLimits: messages of many checks
	Envoy  = "envoy"  // Envoy's ShouldRateLimit: many descriptors
)

// Modes returns all modes.
func Modes() []string { return []string{Unary, Batch, Stream, Envoy} }

// Conn asks a server. It is safe for concurrent use.
type Conn interface {
	// Ask makes one call, with a check of each of the keys. An error carries a gRPC status.
	Ask(ctx context.Context, keys []uint64) (Answers, error)
}

// Answers counts what the checks of a call were answered.
type Answers struct {
	Allowed, Denied int64
	FailOpen        int64 // of the allowed ones: no node could decide in time
	NoRule          int64 // of the allowed ones: nothing limits them
}

// Access is what connections show to a server. The zero value is for one without TLS.
type Access struct {
	TLS   *tls.Config // nil: not encrypted
	Token string      // shown with every call; empty: none. It needs TLS
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (a Access) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + a.Token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (Access) RequireTransportSecurity() bool { return true }

// Dial returns a connection to a server at host:port, which is made when first needed.
func Dial(target string, a Access) (*grpc.ClientConn, error) {
	if host, port, err := net.SplitHostPort(target); err != nil || host == "" || port == "" {
		return nil, fmt.Errorf("address %q is not host:port", target)
	}
	secured := insecure.NewCredentials()
	if a.TLS != nil {
		secured = credentials.NewTLS(a.TLS)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(secured), grpc.WithNoProxy(), grpc.WithDisableServiceConfig()}
	if a.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(a))
	}
	return grpc.NewClient("dns:///"+target, options...)
}

// NewConn returns what asks in a mode.
func NewConn(mode string, conn grpc.ClientConnInterface, r *Requests) (Conn, error) {
	limiter := weirv1.NewRateLimiterClient(conn)
	switch mode {
	case Unary:
		return unaryConn{limiter, r}, nil
	case Batch:
		return batchConn{limiter, r}, nil
	case Stream:
		return &streamConn{limiter: limiter, requests: r}, nil
	case Envoy:
		return newEnvoyConn(conn, r), nil
	}
	return nil, fmt.Errorf("mode: %q is not one of %v", mode, Modes())
}

// Look asks about one key without counting: it connects, and finds out what would fail
// all the time. A node that is too busy to accept the check is no error: load is what it is to be put under.
func Look(ctx context.Context, mode string, conn grpc.ClientConnInterface, r *Requests) error {
	if mode == Envoy {
		return newEnvoyConn(conn, r).look(ctx)
	}
	request := r.native(0)
	request.Peek = true
	_, err := weirv1.NewRateLimiterClient(conn).CheckRateLimit(ctx, request)
	return unlessBusy(err)
}

// unlessBusy returns err, or nil if a node has answered that it is too busy.
func unlessBusy(err error) error {
	if status.Code(err) == codes.ResourceExhausted {
		return nil
	}
	return err
}

type unaryConn struct {
	limiter  weirv1.RateLimiterClient
	requests *Requests
}

// Ask implements Conn, for one key.
func (c unaryConn) Ask(ctx context.Context, keys []uint64) (Answers, error) {
	answer, err := c.limiter.CheckRateLimit(ctx, c.requests.native(keys[0]))
	if err != nil {
		return Answers{}, err
	}
	return count(answer), nil
}

type batchConn struct {
	limiter  weirv1.RateLimiterClient
	requests *Requests
}

// Ask implements Conn.
func (c batchConn) Ask(ctx context.Context, keys []uint64) (Answers, error) {
	resp, err := c.limiter.CheckRateLimitBatch(ctx, &weirv1.RateLimitBatchRequest{Requests: c.requests.natives(keys)})
	if err != nil {
		return Answers{}, err
	}
	return countAll(resp.GetResponses(), len(keys))
}

func count(answers ...*weirv1.RateLimitResponse) (sum Answers) {
	for _, answer := range answers {
		if !answer.GetAllowed() {
			sum.Denied++
			continue
		}
		sum.Allowed++
		switch answer.GetSource() {
		case weirv1.Source_SOURCE_FAIL_OPEN:
			sum.FailOpen++
		case weirv1.Source_SOURCE_NO_RULE:
			sum.NoRule++
		default:
		}
	}
	return sum
}

// countAll refuses answers that are not as many as the checks.
func countAll(answers []*weirv1.RateLimitResponse, checks int) (Answers, error) {
	if len(answers) != checks {
		return Answers{}, wrongNumber(len(answers), checks)
	}
	return count(answers...), nil
}
