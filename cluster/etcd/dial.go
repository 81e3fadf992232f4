package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// dial makes a client. It does not wait for a connection.
func dial(cfg *Config) (*clientv3.Client, error) {
	// With gRPC's own back-off of up to 120 s every lease is lost after an outage
	// although etcd is back.
	options := []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: time.Second,
	})}
	if cfg.User != "" {
		options = append(options, newLogin(cfg.User, cfg.Password).options()...)
	}
	if cfg.Credentials != nil {
		options = append(options, grpc.WithTransportCredentials(cfg.Credentials))
	}
	if cfg.Dial != nil {
		options = append(options, grpc.WithContextDialer(cfg.Dial))
	}
	return clientv3.New(clientv3.Config{
		Endpoints:   cfg.Endpoints,
		Logger:      zap.NewNop(),
		DialOptions: options,
		// 10 s is the least that gRPC allows. It also makes the kernel drop a
		// connection whose data are not acknowledged for 3 s.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		MaxCallRecvMsgSize:   maxMessage,
		// The client repeats reads up to 100 times when a member refuses them at
		// once, as without a leader: not every 25 ms, then.
		BackoffWaitBetween:    100 * time.Millisecond,
		BackoffJitterFraction: 0.5,
	})
}

// awaitAnswer waits until a quorum of etcd answers a read of key, for so long at most.
//
// It uses the raw client, because clientv3 waits for a connection and then says
// no more than that the deadline is over.
func awaitAnswer(ctx context.Context, client *clientv3.Client, key string, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	kv := etcdserverpb.NewKVClient(client.ActiveConnection())
	began := time.Now()
	var why string
	for {
		try, end := context.WithTimeout(ctx, openTimeout)
		_, err := kv.Range(try, &etcdserverpb.RangeRequest{Key: []byte(key), CountOnly: true})
		end()
		switch code := status.Code(err); {
		case err == nil:
			return nil
		case errors.Is(ctx.Err(), context.Canceled):
			return ctx.Err()
		case code == codes.DeadlineExceeded && ctx.Err() == nil && time.Since(began) < patience: // another endpoint may answer
			why = ""
			sleep(ctx, minPause)
			continue
		case ctx.Err() != nil || code == codes.DeadlineExceeded:
			return fmt.Errorf("no answer in %v%s", min(time.Since(began), patience).Round(100*time.Millisecond), why)
		case code != codes.Unavailable:
			return errors.New(status.Convert(err).Message())
		}
		why = " (" + dialReason(err) + ")"
		sleep(ctx, minPause)
	}
}

// dialReason cuts the reason of the operating system, or of TLS, out of gRPC's message.
func dialReason(err error) string {
	msg := status.Convert(err).Message()
	for _, before := range []string{"Error while dialing: ", "authentication handshake failed: ", "error reading server preface: "} {
		if _, after, ok := strings.Cut(msg, before); ok {
			msg, _, _ = strings.Cut(after, `"`)
		}
	}
	return msg
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
