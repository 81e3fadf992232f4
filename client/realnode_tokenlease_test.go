package client_test

import (
	"context"
	"fmt"
	"slices"
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
	awaitSettled(t, first.GRPC, len(seeds)) // tokens that are lent while their counter moves may be lost
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

// awaitSettled waits until the cluster has that many members, and each of them decides in all its partitions.
func awaitSettled(t *testing.T, address string, members int) {
	t.Helper()
	asked, err := client.NewNode(address, client.WithTimeout(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = asked.Close() }()
	late, again := time.After(time.Minute), time.NewTicker(50*time.Millisecond)
	defer again.Stop()
	for {
		resp, err := asked.ListNodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.GetNodes()) == members && !slices.ContainsFunc(resp.GetNodes(), func(n *weirv1.Node) bool {
			return n.GetActive() == 0 || n.GetWanted()+n.GetLeaving() > 0
		}) {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("partitions move still: %v", resp.GetNodes())
		}
	}
}

// allows expects an answer that was counted: by the owner, also if another node has asked that because the one asked does
// not reach it yet, or from what it has lent. A standby that takes a late owner for dead may deny.
func allows(t *testing.T, c *client.Client, req *weirv1.RateLimitRequest) bool {
	r, err := c.Check(context.Background(), req)
	switch r.GetSource() {
	case weirv1.Source_SOURCE_OWNER, weirv1.Source_SOURCE_RELAYED, weirv1.Source_SOURCE_LENT:
	case weirv1.Source_SOURCE_PROVISIONAL:
		if r.GetAllowed() {
			t.Errorf("a standby has allowed: %v", r)
		}
	default:
		t.Errorf("%v, %v", r, err)
	}
	return r.GetAllowed()
}

// lentUsed expects that each client has used more lent tokens than before, which is their number by client.
func lentUsed(t *testing.T, clients []*client.Client, before []uint64) {
	t.Helper()
	for i, c := range clients {
		if s := c.Stats(); s.LentUsed <= before[i] {
			t.Errorf("nothing was decided from lent tokens: %+v", s)
		}
	}
}

// used returns how many lent tokens each client has used.
func used(clients []*client.Client) (used []uint64) {
	for _, c := range clients {
		used = append(used, c.Stats().LentUsed)
	}
	return used
}

const (
	perDay    = 10_000
	perSecond = 3000
)

// leasedRules have a rule for TestLeasesOfRealNodes/OneWindow and one for SeveralWindows.
var leasedRules = fmt.Sprintf("domain: default\nrules:\n"+
	"  - {id: day, when: {endpoint: /day}, per: [user], limits: [{limit: %d, window: 1d, algorithm: fixed_window}]}\n"+
	"  - {id: second, when: {endpoint: /second}, per: [user], limits: [{limit: %d, window: 1s, algorithm: fixed_window}]}\n", perDay, perSecond)

// Clients that share limits from lent tokens are allowed what the limits allow, and no more.
//
// The test takes more than 10 s of real time, most of it for three nodes that become one cluster: leases go through their
// sockets and their etcd, which have no virtual clock. TestLeasesNeverExceedTheLimit is the same for one lender, in a bubble.
func TestLeasesOfRealNodes(t *testing.T) {
	clients := fleet(t, leasedRules)
	t.Run("OneWindow", func(t *testing.T) { inOneWindow(t, clients) })
	t.Run("SeveralWindows", func(t *testing.T) { inSeveralWindows(t, clients) })
}

func inOneWindow(t *testing.T, clients []*client.Client) {
	before := used(clients)
	for i, c := range clients { // by itself, or others may have used up the limit before it is lent any
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				req := request(fmt.Sprint("alone-", i))
				req.Endpoint = "/day"
				for allowed := true; allowed && c.Stats().LentUsed == before[i]; {
					allowed = allows(t, c, req)
				}
			})
		}
		callers.Wait()
	}
	lentUsed(t, clients, before)
	var allowed [2]atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for n := range 3000 { // 36,000 in all
				key := (n + i) % len(allowed)
				req := request(fmt.Sprint("user-", key))
				if req.Endpoint = "/day"; allows(t, clients[i%3], req) {
					allowed[key].Add(1)
				}
			}
		})
	}
	wg.Wait()
	for key := range allowed {
		// A lease that is given back too late is lost.
		if got := allowed[key].Load(); got > perDay || got < perDay*95/100 {
			t.Errorf("key %d: %d allowed of %d", key, got, perDay)
		}
	}
}

// In three windows clients are allowed no more than three times the limit.
func inSeveralWindows(t *testing.T, clients []*client.Client) {
	const window, windows = time.Second, 3
	before := used(clients)
	asked := func(user string) *weirv1.RateLimitRequest {
		req := request(user)
		req.Endpoint = "/second"
		return req
	}
	for _, c := range clients {
		allows(t, c, asked("warm"))
	}
	begin := time.Now().Truncate(window).Add(window)
	<-time.After(time.Until(begin))
	var allowed atomic.Int64
	var denied [windows]atomic.Bool // in that window, as its limit was used up
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			for time.Since(begin) < windows*window-window/2 {
				since := time.Since(begin) / window
				if allows(t, clients[i%3], asked("alice")) {
					allowed.Add(1)
				} else if now := time.Since(begin) / window; now == since && now < windows {
					denied[now].Store(true)
				}
			}
		})
	}
	wg.Wait()
	// A busy machine may use up less than all of them, and answer after the last one what was asked in it.
	most, usedUp := int64(time.Since(begin)/window)+1, int64(0)
	for i := range denied {
		if denied[i].Load() {
			usedUp++
		}
	}
	if got := allowed.Load(); got > most*perSecond || got < usedUp*perSecond*9/10 {
		t.Errorf("%d allowed in %d windows of %d, of which %d were used up", got, most, perSecond, usedUp)
	}
	lentUsed(t, clients, before)
}
