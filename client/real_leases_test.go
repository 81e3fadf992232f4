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

// Three clients of three real nodes, all on loopback, share limits from lent tokens,
// and are allowed just what the limits allow.
func TestLeasesOfRealNodes(t *testing.T) {
	const most = 20_000
	rules := fmt.Sprintf("domain: default\nrules:\n  - {id: per-user, per: [user], limits: [{limit: %d, window: 1d, algorithm: fixed_window}]}\n", most)
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
	var allowed [4]atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for n := range 10_000 { // 120,000 in all, of 4 keys
				key := (n + i) % len(allowed)
				r, err := clients[i%3].Check(context.Background(), request(fmt.Sprint("user-", key)))
				if err != nil || client.Undecided(r) || r.GetSource() == weirv1.Source_SOURCE_FAIL_OPEN {
					t.Errorf("%v, %v", r, err)
					return
				}
				if r.GetAllowed() {
					allowed[key].Add(1)
				}
			}
		})
	}
	wg.Wait()
	var used uint64
	for _, c := range clients {
		used += c.Stats().LentUsed
	}
	for key := range allowed {
		got := allowed[key].Load()
		t.Logf("key %d: %d of %d allowed", key, got, most)
		if got > most || got < most*95/100 {
			t.Errorf("key %d: %d of %d allowed", key, got, most)
		}
	}
	if used == 0 {
		t.Error("nothing was decided from lent tokens")
	}
}
