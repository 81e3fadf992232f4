package node

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// startBlocked starts a node that does not reach an address until release is called.
func startBlocked(t *testing.T, opts Options, unreached string) (release func(), ready <-chan Info) {
	t.Helper()
	held, release := context.WithCancel(context.Background())
	network := Network{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		if address == unreached {
			select {
			case <-held.Done():
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}
	infos := make(chan Info, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- RunOn(ctx, network, opts, quiet(), func(i Info) { infos <- i }) }()
	t.Cleanup(func() {
		release()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return release, infos
}

// A client that connects to a node that is starting, as one does whose node is restarted, asks others until that node can decide.
func TestClientOfANodeThatStarts(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(oneAYear), 0o600); err != nil {
		t.Fatal(err)
	}
	first := testOptions(t)
	first.Rules = rules
	a, _, _ := start(t, first)
	second := testOptions(t)
	second.ID, second.Rules, second.Etcd, second.GRPC, second.HTTP = "b", rules, []string{a.Etcd}, freed(t), freed(t)
	release, ready := startBlocked(t, second, a.GRPC)

	conn, err := grpc.NewClient(second.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	health := weirv1.NewRateLimiterHealthClient(conn)
	if _, err := health.GetHealthStatus(t.Context(), &weirv1.GetHealthStatusRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err) // it answers calls by now
	}
	c, err := client.New(a.GRPC, client.WithSeeds(second.GRPC), client.WithTimeout(2*time.Second)) // not how fast, but who answers
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for began, n := time.Now(), 0; time.Since(began) < time.Second; n++ {
		answer, err := c.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: strconv.Itoa(n)})
		if err != nil || client.Undecided(answer) {
			t.Fatalf("check %d is answered %v, %v", n, answer, err)
		}
	}
	release()
	info := <-ready
	for n := 0; !strings.Contains(metricsOf(t, info), `weir_check_duration_seconds_count{api="stream"} `+"1"); n++ {
		if _, err := c.Check(t.Context(), &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: strconv.Itoa(n)}); err != nil {
			t.Fatal(err)
		}
	}
}
