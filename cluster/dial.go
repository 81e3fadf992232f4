package cluster

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Times of connecting to a peer.
const (
	connectTimeout = time.Second
	answerTimeout  = time.Second // of Answers
)

// Dial is the Dialer for real networks.
func Dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("dns:///"+address, dialOptions()...)
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // a question that is asked twice may be counted twice
		grpc.WithIdleTimeout(0), // a lane's stream keeps it busy anyway
		grpc.WithConnectParams(grpc.ConnectParams{
			// The lane tries again every probeEvery, and resets the back-off.
			Backoff:           backoff.Config{BaseDelay: probeEvery, Multiplier: 1, MaxDelay: probeEvery},
			MinConnectTimeout: connectTimeout,
		}),
	}
}

// Answers reports whether the node id runs at address right now.
func Answers(ctx context.Context, address, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := Dial(address)
	if err != nil {
		return false
	}
	defer conn.Close()
	resp, err := weirv1.NewRateLimiterHealthClient(conn).GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{})
	return err == nil && resp.GetNodeId() == id
}
