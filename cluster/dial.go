package cluster

import (
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

const connectTimeout = time.Second // to a peer

// Dial is the Dialer for real networks.
func Dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient("dns:///"+url.PathEscape(address), dialOptions()...)
}

func dialOptions() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // a question that is asked twice may be counted twice
		grpc.WithIdleTimeout(0), // a lane's stream keeps it busy anyway
		grpc.WithConnectParams(grpc.ConnectParams{
			// By default gRPC waits for up to two minutes before it tries again.
			Backoff:           backoff.Config{BaseDelay: probeEvery, Multiplier: 1, MaxDelay: probeEvery},
			MinConnectTimeout: connectTimeout,
		}),
	}
}
