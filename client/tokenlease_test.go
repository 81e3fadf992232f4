package client_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// lending runs a test in which time is virtual, on a node that lends.
func lending(t *testing.T, limit int64, test func(t *testing.T, n *network, l *lender)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		test(t, n, startLender(n, limit))
	})
}

// admitted counts what clients were allowed, by the window in which it was counted.
type admitted struct {
	t  *testing.T
	mu sync.Mutex
	by map[int64]int64 // guarded by mu
}

// ask asks once. What is decided from lent tokens must be decided in the window in which
// they were counted.
func (a *admitted) ask(c *client.Client, req *weirv1.RateLimitRequest) {
	r, err := c.Check(a.t.Context(), req)
	if err != nil {
		a.t.Error(err)
		return
	}
	if !r.GetAllowed() || client.Undecided(r) {
		return
	}
	if now := window(time.Now()); r.GetSource() == weirv1.Source_SOURCE_LENT && now != r.GetResetTime() {
		a.t.Errorf("tokens of window %d were used in window %d", r.GetResetTime(), now)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.by[r.GetResetTime()] += max(1, req.GetTokensRequested())
}

// Any number of clients that share a limit, under any faults on the way, are not allowed more than the
// limit in any window.
func TestLeasesNeverExceedTheLimit(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			lending(t, 2000, func(t *testing.T, n *network, l *lender) {
				r := rand.New(rand.NewPCG(seed, 1))
				l.delay = upTo(r, []time.Duration{1, time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond}[seed%4])
				got := &admitted{t: t, by: make(map[int64]int64)}
				var clients []*client.Client
				for range 3 {
					clients = append(clients, n.client("l:1", client.WithoutDiscovery(), client.WithLeases(), client.WithTimeout(time.Second)))
				}
				var wg sync.WaitGroup
				for i := range 24 {
					pace := upTo(rand.New(rand.NewPCG(seed, uint64(i))), []time.Duration{5 * time.Millisecond, 20 * time.Millisecond}[i/3%2])
					wg.Go(func() {
						req := request("alice")
						req.TokensRequested = int64(i % 3)
						for began := time.Now(); time.Since(began) < 4*lentWindow; pause(pace()) {
							got.ask(clients[i%3], req)
						}
					})
				}
				if seed%5 == 4 {
					time.Sleep(lentWindow * 7 / 5)
					l.stop()
					time.Sleep(20 * time.Millisecond)
					l.serve(n)
				}
				wg.Wait()
				var lent uint64
				for _, c := range clients {
					lent += c.Stats().LentUsed
				}
				if lent == 0 && seed%4 != 3 { // there tokens lapse on the way
					t.Error("nothing was decided from lent tokens")
				}
				for w, sum := range got.by {
					if sum > l.limit || sum > l.counted[w] {
						t.Errorf("%d allowed in window %d, where %d were counted, of %d", sum, w, l.counted[w], l.limit)
					}
				}
			})
		})
	}
}

// What is lent and not used is given back: before it lapses, and when the client closes.
func TestLeasesAreGivenBack(t *testing.T) {
	lending(t, 1_000_000, func(t *testing.T, n *network, l *lender) {
		c := n.client("l:1", client.WithoutDiscovery(), client.WithLeases())
		got := &admitted{t: t, by: make(map[int64]int64)}
		counted := func() int64 {
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.counted[window(time.Now())]
		}
		time.Sleep(lentWindow - time.Duration(time.Now().UnixNano())%lentWindow)
		for range 100 {
			got.ask(c, request("alice"))
		}
		if counted() <= 100 {
			t.Error("nothing is lent")
		}
		time.Sleep(lentWindow * 5 / 8) // long before they lapse
		if got := counted(); got != 100 {
			t.Errorf("%d are counted, want 100", got)
		}
		time.Sleep(lentWindow / 4)
		for range 100 { // with an eighth of the window to go
			got.ask(c, request("alice"))
		}
		time.Sleep(lentWindow/8 - 1)
		if got := counted(); got != 200 {
			t.Errorf("%d are counted at the end of the window, want 200", got)
		}
		time.Sleep(lentWindow / 2)
		for range 100 {
			got.ask(c, request("alice"))
		}
		before := counted()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if got := counted(); before <= 100 || got != 100 {
			t.Errorf("%d are counted, and %d when the client is closed; want more, and 100", before, got)
		}
		s := c.Stats()
		if s.Lent != s.LentUsed+s.GivenBack || s.Lent != uint64(l.lent) || s.LentUsed+s.Answered > 300+10 {
			t.Errorf("%+v, lent %d", s, l.lent)
		}
	})
}

// However many keys have leases, closing gives all of them back.
func TestCloseGivesAllBack(t *testing.T) {
	lending(t, 1_000_000_000, func(t *testing.T, n *network, l *lender) {
		c := n.client("l:1", client.WithoutDiscovery(), client.WithLeases())
		got := &admitted{t: t, by: make(map[int64]int64)}
		const keys = 1500
		for i := range keys {
			for range 10 {
				got.ask(c, request(fmt.Sprint("user-", i)))
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if counted := l.counted[window(time.Now())]; counted != 10*keys || l.lent < 32*keys*9/10 {
			t.Errorf("%d counted, want %d; %d were lent", counted, 10*keys, l.lent)
		}
	})
}

// A hot key is hardly ever asked for, and a cold one is not lent anything.
func TestLeasesSaveCalls(t *testing.T) {
	lending(t, 1_000_000_000, func(t *testing.T, n *network, l *lender) {
		c := n.client("l:1", client.WithoutDiscovery(), client.WithLeases())
		got := &admitted{t: t, by: make(map[int64]int64)}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 25_000 {
					got.ask(c, request("alice"))
				}
			})
		}
		wg.Wait()
		if l.asked > 2000 || l.counted[window(time.Now())] < 200_000 {
			t.Errorf("asked %d times, %d counted", l.asked, l.counted[window(time.Now())])
		}
		before := l.lent
		for i := range 1000 {
			got.ask(c, request(fmt.Sprint("cold-", i)))
			time.Sleep(10 * time.Millisecond)
		}
		if l.lent != before {
			t.Errorf("%d tokens are lent for cold keys", l.lent-before)
		}
	})
}

// Requests that differ in anything that rules can see do not share tokens.
func TestLeasesDistinguishKeys(t *testing.T) {
	lending(t, 1_000_000, func(t *testing.T, n *network, l *lender) {
		c := n.client("l:1", client.WithoutDiscovery(), client.WithLeases())
		base := func() *weirv1.RateLimitRequest {
			return &weirv1.RateLimitRequest{
				IdentifierType: "user", Identifier: "alice", Endpoint: "/e", Domain: "d",
				Attributes: map[string]string{"a": "1", "b": "2"},
			}
		}
		ask := func(req *weirv1.RateLimitRequest) (asked int64) {
			t.Helper()
			before := l.asked
			r, err := c.Check(t.Context(), req)
			asked = l.asked - before
			if err != nil || !r.GetAllowed() || r.GetLease() != nil || (r.GetSource() == weirv1.Source_SOURCE_LENT) != (asked == 0) {
				t.Errorf("%v, %v, asked %d times", r, err, asked)
			}
			return asked
		}
		for range 20 {
			ask(base())
		}
		same := base()
		same.Timestamp, same.TokensRequested = 7, 2
		if ask(base()) != 0 || ask(same) != 0 {
			t.Error("the lent tokens are not used")
		}
		for name, change := range map[string]func(r *weirv1.RateLimitRequest){
			"identifier": func(r *weirv1.RateLimitRequest) { r.Identifier = "bob" },
			"type":       func(r *weirv1.RateLimitRequest) { r.IdentifierType = "key" },
			"swapped":    func(r *weirv1.RateLimitRequest) { r.IdentifierType, r.Identifier = "alice", "user" },
			"endpoint":   func(r *weirv1.RateLimitRequest) { r.Endpoint = "/f" },
			"domain":     func(r *weirv1.RateLimitRequest) { r.Domain = "e" },
			"value":      func(r *weirv1.RateLimitRequest) { r.Attributes["b"] = "3" },
			"fewer":      func(r *weirv1.RateLimitRequest) { delete(r.Attributes, "b") },
			"more":       func(r *weirv1.RateLimitRequest) { r.Attributes["c"] = "3" },
			"peek":       func(r *weirv1.RateLimitRequest) { r.Peek = true },
			"giving":     func(r *weirv1.RateLimitRequest) { r.TokensRequested = -1 },
			"much":       func(r *weirv1.RateLimitRequest) { r.TokensRequested = 1000 },
		} {
			req := base()
			change(req)
			if ask(req) != 1 {
				t.Errorf("%s: not asked", name)
			}
		}
	})
}

// Requests for more than a node takes leave the lent tokens alone, however far beyond it they are;
// from a lease that has ended they would wrap its counter, and be allowed.
func TestCostAboveTheLease(t *testing.T) {
	lending(t, 1_000_000, func(t *testing.T, n *network, l *lender) {
		c := n.client("l:1", client.WithoutDiscovery(), client.WithLeases())
		much := request("alice")
		for range 20 {
			if r, err := c.Check(t.Context(), request("alice")); err != nil || !r.GetAllowed() {
				t.Fatalf("%v, %v", r, err)
			}
		}
		used := c.Stats().LentUsed
		for _, much.TokensRequested = range []int64{1<<31 + 1, math.MaxInt64, math.MaxInt64, math.MaxInt64} {
			before := l.asked
			_, err := c.Check(t.Context(), much)
			if status.Code(err) != codes.InvalidArgument || l.asked != before+1 {
				t.Errorf("%d tokens: %v, asked %d times", much.TokensRequested, err, l.asked-before)
			}
		}
		if got := c.Stats().LentUsed; got != used {
			t.Errorf("%d lent tokens are used, after %d", got, used)
		}
		much.TokensRequested = 1
		if r, err := c.Check(t.Context(), much); err != nil || r.GetSource() != weirv1.Source_SOURCE_LENT {
			t.Errorf("the lent tokens are gone: %v, %v", r, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		much.TokensRequested = math.MaxInt64
		if r, err := c.Check(t.Context(), much); !errors.Is(err, client.ErrClosed) {
			t.Errorf("after the end: %v, %v", r, err)
		}
	})
}

// Without a node, what is lent is still used; after that the client answers by itself.
func TestLeasesOutliveTheNode(t *testing.T) {
	lending(t, 1000, func(t *testing.T, n *network, l *lender) {
		c := n.client("l:1", client.WithoutDiscovery(), client.WithLeases())
		time.Sleep(lentWindow - time.Duration(time.Now().UnixNano())%lentWindow)
		for range 20 {
			if r, err := c.Check(t.Context(), request("alice")); err != nil || !r.GetAllowed() {
				t.Fatalf("%v, %v", r, err)
			}
		}
		left := l.lent - int64(c.Stats().LentUsed)
		l.stop()
		synctest.Wait()
		var decided int64
		for {
			r, err := c.Check(t.Context(), request("alice"))
			if err != nil {
				t.Fatal(err)
			}
			if client.Undecided(r) {
				break
			}
			decided++
		}
		if decided != left || left == 0 {
			t.Errorf("%d decided of %d that were lent", decided, left)
		}
	})
}
