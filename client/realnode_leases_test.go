package client_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// fleet returns three clients with leases, each of which was told of another one of three
// real nodes on loopback.
func fleet(t *testing.T, rules string) []*client.Client {
	t.Helper()
	first := startNode(t, "a", rules)
	seeds := []string{first.GRPC, startNode(t, "b", rules, first.Etcd).GRPC, startNode(t, "c", rules, first.Etcd).GRPC}
	var clients []*client.Client
	for _, seed := range seeds {
		c, err := client.New(seed, client.WithLeases(), client.WithTimeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
	}
	return clients
}

// allows expects an answer that was counted: by the owner, also if another node has asked that because the one asked does
// not reach it yet, or from what it has lent.
func allows(t *testing.T, c *client.Client, req *weirv1.RateLimitRequest) bool {
	r, err := c.Check(context.Background(), req)
	switch r.GetSource() {
	case weirv1.Source_SOURCE_OWNER, weirv1.Source_SOURCE_RELAYED, weirv1.Source_SOURCE_LENT:
	default:
		t.Errorf("%v, %v", r, err)
	}
	return r.GetAllowed()
}

func lentUsed(t *testing.T, clients []*client.Client) {
	t.Helper()
	for _, c := range clients {
		if s := c.Stats(); s.LentUsed == 0 {
			t.Errorf("nothing was decided from lent tokens: %+v", s)
		}
	}
}

// Clients that share limits from lent tokens are allowed what the limits allow, and no
// more.
func TestLeasesOfRealNodes(t *testing.T) {
	const most = 10_000
	clients := fleet(t, fmt.Sprintf("domain: default\nrules:\n  - {id: per-user, per: [user], limits: [{limit: %d, window: 1d, algorithm: fixed_window}]}\n", most))
	var allowed [2]atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for n := range 3000 { // 36,000 in all
				if key := (n + i) % len(allowed); allows(t, clients[i%3], request(fmt.Sprint("user-", key))) {
					allowed[key].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for key := range allowed {
		// A lease that is given back too late is lost.
		if got := allowed[key].Load(); got > most || got < most*95/100 {
			t.Errorf("key %d: %d allowed of %d", key, got, most)
		}
	}
	lentUsed(t, clients)
}

// In three windows they are allowed no more than three times the limit.
func TestLeasesInSeveralWindows(t *testing.T) {
	const most, window, windows = 3000, time.Second, 3
	clients := fleet(t, fmt.Sprintf("domain: default\nrules:\n  - {id: per-user, per: [user], limits: [{limit: %d, window: %v, algorithm: fixed_window}]}\n", most, window))
	for _, c := range clients {
		allows(t, c, request("warm"))
	}
	begin := time.Now().Truncate(window).Add(window)
	<-time.After(time.Until(begin))
	var allowed atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			// What is asked in the last window is answered in it, as the limit is long used up.
			for time.Since(begin) < windows*window-window/2 {
				if allows(t, clients[i%3], request("alice")) {
					allowed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got := allowed.Load(); got > windows*most || got < windows*most*9/10 {
		t.Errorf("%d allowed in %d windows of %d", got, windows, most)
	}
	lentUsed(t, clients)
}
