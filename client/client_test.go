package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// bubble runs a test in which time is virtual, on a network of nodes a, b and so on,
// which all know each other.
func bubble(t *testing.T, size int, test func(t *testing.T, n *network, nodes []*fakeNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		var nodes []*fakeNode
		for i := range size {
			nodes = append(nodes, n.start(string(rune('a'+i))))
		}
		if size > 0 {
			n.members(nodes...)
		}
		test(t, n, nodes)
	})
}

// allowed asks once and expects an answer from a node.
func allowed(t *testing.T, c *client.Client, user string) bool {
	t.Helper()
	r, err := c.Check(t.Context(), request(user))
	if err != nil || client.Undecided(r) {
		t.Fatalf("%v, %v, want a node's answer", r, err)
	}
	return r.GetAllowed()
}

// askMany asks n times at once and expects answers from nodes. It returns how many
// were allowed.
func askMany(t *testing.T, c *client.Client, user string, n int) (sum int) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			r, err := c.Check(t.Context(), request(user))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || client.Undecided(r) {
				t.Errorf("%v, %v, want a node's answer", r, err)
			}
			if r.GetAllowed() {
				sum++
			}
		})
	}
	wg.Wait()
	return sum
}

// askInTurn asks n times, each when all others wait for the nodes, which are held, and
// then releases these.
func askInTurn(t *testing.T, c *client.Client, user string, n int, nodes ...*fakeNode) {
	t.Helper()
	for _, f := range nodes {
		f.hold()
		f.asked.Store(0)
		f.batches.Store(0)
	}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { allowed(t, c, user) })
		synctest.Wait()
	}
	for _, f := range nodes {
		f.release()
	}
	wg.Wait()
}

// One seed is enough to share the load among all nodes, in batches, and to count each
// check once.
func TestClientSharesTheLoad(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("b:1")
		askInTurn(t, c, "bob", 300, nodes...)
		for _, f := range nodes {
			// 4 messages are under way when all others queue up.
			if asked, batches := f.asked.Load(), f.batches.Load(); asked < 95 || asked > 105 || batches != 5 {
				t.Errorf("%s was asked %d of 300 checks in %d messages", f.id, asked, batches)
			}
		}
		if got := askMany(t, c, "alice", 3*limit-300); got != limit {
			t.Errorf("%d allowed, want %d", got, limit)
		}
		s := c.Stats()
		if s.Answered != 3*limit || s.Retried+s.Undecided+s.Overloaded != 0 {
			t.Errorf("%+v", s)
		}
		var got []string
		for _, node := range s.Nodes {
			got = append(got, fmt.Sprint(node.Address, " ", node.ID, " ", node.Problem))
		}
		if want := []string{"a:1 a <nil>", "b:1 b <nil>", "c:1 c <nil>"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestConnections(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithConnections(3))
		askMany(t, c, "alice", 100)
		if got := nodes[0].batches.Load(); got < 3 {
			t.Errorf("%d messages on 3 connections", got)
		}
		if got := len(c.Stats().Nodes); got != 1 {
			t.Errorf("%d nodes, want 1", got)
		}
	})
}

func TestClientBatch(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		var reqs []*weirv1.RateLimitRequest
		for i := range 1000 {
			reqs = append(reqs, request(fmt.Sprint(i)))
			reqs[i].TokensRequested = int64(i + 1)
		}
		answers, err := c.CheckBatch(t.Context(), reqs)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range answers {
			if got, want := r.GetRemainingTokens(), uint32(limit-i-1); got != want {
				t.Fatalf("answer %d has %d left, want %d", i, got, want)
			}
		}
		if nodes[0].batches.Load()+nodes[1].batches.Load() != 1 {
			t.Error("want one message")
		}
	})
}

// refused says what an error must be.
func refused(t *testing.T, err error, code codes.Code, message string) {
	t.Helper()
	if s := status.Convert(err); s.Code() != code || s.Message() != message {
		t.Errorf("got %v, want %v %s", err, code, message)
	}
}

// An invalid request is an error for its own caller, as if it had been sent alone, and for no other.
func TestInvalid(t *testing.T) {
	const noPrice = `attributes: attribute "size" is the cost of rule "priced": "much" is not a whole number between 0 and 2147483648`
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		var wg sync.WaitGroup
		priced := func(size string) *weirv1.RateLimitRequest {
			r := request("alice")
			r.Endpoint, r.Attributes = "/priced", map[string]string{"size": size}
			return r
		}
		for i := range 60 {
			wg.Go(func() {
				if i%7 != 0 {
					if !allowed(t, c, "alice") {
						t.Error("denied")
					}
					return
				}
				_, err := c.Check(t.Context(), priced("much"))
				refused(t, err, codes.InvalidArgument, noPrice)
			})
		}
		synctest.Wait()
		nodes[0].release()
		wg.Wait()
		if got := n.used(c, "alice"); got != 51 {
			t.Errorf("%d counted, want 51", got)
		}

		_, err := c.CheckBatch(t.Context(), []*weirv1.RateLimitRequest{request("bob"), priced("much"), request("bob")})
		refused(t, err, codes.InvalidArgument, "requests[1]."+noPrice)
		if got := n.used(c, "bob"); got != 0 {
			t.Errorf("%d counted", got)
		}
		_, err = c.CheckBatch(t.Context(), nil)
		refused(t, err, codes.InvalidArgument, "requests: must not be empty")
		_, err = c.CheckBatch(t.Context(), slices.Repeat([]*weirv1.RateLimitRequest{request("bob")}, 1001))
		refused(t, err, codes.InvalidArgument, "requests: 1001 items are more than 1000")
		_, err = c.Check(t.Context(), request(strings.Repeat("x", 300<<10)))
		refused(t, err, codes.InvalidArgument, "requests: 307214 bytes are more than 256000")
		_, err = c.Check(t.Context(), request("\xff"))
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("got %v", err)
		}
		if s := c.Stats(); s.Undecided+s.Retried != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// An invalid batch is refused as if it had been sent alone, and no other call is.
func TestInvalidBatchAmongOthers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { allowed(t, c, "alice") })
			wg.Go(func() {
				bad := []*weirv1.RateLimitRequest{request("alice"), request(""), request("alice")}
				_, err := c.CheckBatch(t.Context(), bad)
				refused(t, err, codes.InvalidArgument, "requests[1].identifier: must not be empty")
			})
			wg.Go(func() {
				_, err := c.CheckBatch(t.Context(), nil)
				refused(t, err, codes.InvalidArgument, "requests: must not be empty")
			})
		}
		synctest.Wait()
		nodes[0].release()
		wg.Wait()
		if got := n.used(c, "alice"); got != 20 {
			t.Errorf("%d counted, want 20", got)
		}
	})
}

// Messages stay below the bounds of a node for any mix of calls.
func TestLargeRequests(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		var wg sync.WaitGroup
		for range 3000 {
			wg.Go(func() {
				r := request("alice")
				r.Attributes = map[string]string{"k": strings.Repeat("v", 256)}
				if r, err := c.Check(t.Context(), r); err != nil || client.Undecided(r) {
					t.Errorf("%v, %v", r, err)
				}
			})
		}
		synctest.Wait()
		nodes[0].release()
		wg.Wait()
		if s := c.Stats(); s.Answered != 3000 || s.Retried != 0 {
			t.Errorf("%+v", s)
		}

		nodes[0].hold()
		wg.Go(func() { askMany(t, c, "bob", 3000) })
		synctest.Wait()
		nodes[0].release()
		wg.Wait()
		if got := nodes[0].largest.Load(); got != 1000 {
			t.Errorf("the largest message had %d checks, want 1000", got)
		}
	})
}

// A check that travels with one that has less time keeps its own.
func TestShortDeadlineAmongOthers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		var wg sync.WaitGroup
		for range 4 { // messages under way
			wg.Go(func() { allowed(t, c, "alice") })
			synctest.Wait()
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if r, err := c.Check(ctx, request("alice")); err != nil || !client.Undecided(r) {
				t.Errorf("%v, %v", r, err)
			}
		})
		synctest.Wait()
		wg.Go(func() { allowed(t, c, "alice") })
		time.Sleep(30 * time.Millisecond)
		nodes[0].release()
		wg.Wait()
		if s := c.Stats(); s.Retried != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What a node had to do once does not count for ever.
func TestLoadIsForgotten(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, c *client.Client, a *fakeNode){
		"answered": func(t *testing.T, c *client.Client, a *fakeNode) { askMany(t, c, "alice", 500) },
		"refused": func(t *testing.T, c *client.Client, a *fakeNode) {
			a.hold()
			var wg sync.WaitGroup
			for range 300 {
				wg.Go(func() { allowed(t, c, "alice") })
				wg.Go(func() { _, _ = c.Check(t.Context(), request("")) })
			}
			synctest.Wait()
			a.release()
			wg.Wait()
		},
		"broken": func(t *testing.T, c *client.Client, a *fakeNode) {
			a.hold()
			var wg sync.WaitGroup
			for range 500 {
				wg.Go(func() { _, _ = c.Check(t.Context(), request("alice")) })
			}
			synctest.Wait()
			a.kill()
			wg.Wait()
			a.members(a.start("a"))
			time.Sleep(5 * time.Second)
		},
		"late": func(t *testing.T, c *client.Client, a *fakeNode) {
			a.hold()
			for range 8 {
				_, _ = c.CheckBatch(t.Context(), slices.Repeat([]*weirv1.RateLimitRequest{request("alice")}, 1000))
			}
			a.release()
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
				c := n.client("a:1")
				before(t, c, nodes[0])
				a, b := n.nodes["a:1"], n.start("b")
				n.members(a, b)
				time.Sleep(15 * time.Second)
				askInTurn(t, c, "bob", 200, a, b)
				if got := a.asked.Load(); got < 95 || got > 105 {
					t.Errorf("a was asked %d of 200 checks", got)
				}
			})
		})
	}
}

// A node that has something to do is asked less than one that has nothing to do.
func TestBusyNode(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { allowed(t, c, "alice") })
			synctest.Wait()
		}
		if got := nodes[1].asked.Load(); got < 49 {
			t.Errorf("b has answered %d of 50 checks", got)
		}
		nodes[0].release()
		wg.Wait()
	})
}

// The context's deadline holds instead of the client's, and canceling is an error.
func TestContext(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		for _, f := range nodes {
			f.hold()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		r, err := c.Check(ctx, request("alice"))
		if took := time.Since(began); err != nil || !client.Undecided(r) || took != 20*time.Millisecond {
			t.Errorf("%v, %v after %v", r, err, took)
		}
		time.Sleep(100 * time.Millisecond) // now they are known to be silent
		if r, err := c.Check(ctx, request("alice")); err != nil || !client.Undecided(r) {
			t.Errorf("%v, %v after the deadline", r, err)
		}

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		for range 2 { // in the middle, and before
			if _, err := c.Check(ctx, request("alice")); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		}
		for _, f := range nodes {
			f.release()
		}
		synctest.Wait()
		before := nodes[0].asked.Load() + nodes[1].asked.Load()
		_, _ = c.Check(ctx, request("alice"))
		synctest.Wait()
		if nodes[0].asked.Load()+nodes[1].asked.Load() != before {
			t.Error("a node was asked for a caller that had canceled before")
		}
	})
}

func TestUndecided(t *testing.T) {
	for _, test := range []struct {
		source weirv1.Source
		rule   string
		want   bool
	}{
		{weirv1.Source_SOURCE_FAIL_OPEN, "", true},
		{weirv1.Source_SOURCE_FAIL_CLOSED, "", true},
		{weirv1.Source_SOURCE_FAIL_OPEN, "r", true}, // by a node
		{weirv1.Source_SOURCE_FAIL_CLOSED, "r", true},
		{weirv1.Source_SOURCE_LOCAL, "r", false},
		{weirv1.Source_SOURCE_NO_RULE, "", false},
		{weirv1.Source_SOURCE_OWNER, "r", false},
	} {
		if got := client.Undecided(&weirv1.RateLimitResponse{Source: test.source, RuleId: test.rule}); got != test.want {
			t.Errorf("%v %q: %t", test.source, test.rule, got)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	tests := []struct {
		addr string
		opts []client.Option
		want string
	}{
		{"9090", nil, `client of 9090: address "9090" is not host:port`},
		{":9090", nil, `client of :9090: address ":9090" is not host:port`},
		{"a:1", []client.Option{client.WithSeeds("b:1", "127.0.0.1:")}, `client of a:1: address "127.0.0.1:" is not host:port`},
		{"a:1", []client.Option{client.WithTimeout(0)}, "client of a:1: timeout 0s is not positive"},
		{"a:1", []client.Option{client.WithCluster("default")}, "client of a:1: cluster \"default\" is not 16 hexadecimal digits"},
		{"a:1", []client.Option{client.WithConnections(9)}, "client of a:1: connections 9 are not between 1 and 8"},
		{"a:1", []client.Option{client.WithConnections(0)}, "client of a:1: connections 0 are not between 1 and 8"},
		{"a:1", []client.Option{client.WithDialer(nil)}, "client of a:1: dialer is nil"},
		{"a:1", []client.Option{client.WithSeeds(slices.Repeat([]string{"a:1"}, 256)...)}, "client of a:1: 257 seeds are more than 256"},
	}
	for _, test := range tests {
		if _, err := client.New(test.addr, test.opts...); err == nil || err.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.addr, err, test.want)
		}
	}
}

func TestClientClosed(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		result := make(chan error)
		go func() {
			_, err := c.Check(t.Context(), request("alice"))
			result <- err
		}()
		synctest.Wait()
		go func() { _ = c.Close() }()
		if err := <-result; !errors.Is(err, client.ErrClosed) {
			t.Errorf("under way: got %v", err)
		}
		if _, err := c.Check(t.Context(), request("alice")); !errors.Is(err, client.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
}
