package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/cluster"

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

func TestWithoutDiscovery(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("b:1", client.WithoutDiscovery(), client.WithSeeds("c:1"))
		askMany(t, c, "alice", 100)
		if nodes[0].asked.Load() != 0 || nodes[1].asked.Load() == 0 || nodes[2].asked.Load() == 0 {
			t.Error("want b and c asked, and a not")
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

// An invalid request is an error for whoever made it, as if it had been asked alone,
// and for nobody else.
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

// A batch that is invalid is refused as if it had travelled alone, and refuses nobody else.
func TestInvalidBatchInCompany(t *testing.T) {
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
		}
		synctest.Wait()
		nodes[0].release()
		wg.Wait()
		if got := n.used(c, "alice"); got != 20 {
			t.Errorf("%d counted, want 20", got)
		}
	})
}

// Messages stay below what a node accepts, whatever comes together.
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
func TestHurryInCompany(t *testing.T) {
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

// A node that ends, however it does, costs no answer.
func TestNodeEnds(t *testing.T) {
	for name, end := range map[string]func(*fakeNode){"killed": (*fakeNode).kill, "stopped": (*fakeNode).stop} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
				c := n.client("a:1")
				var wg sync.WaitGroup
				for range 30 {
					wg.Go(func() {
						for range 20 {
							allowed(t, c, "alice")
							time.Sleep(time.Millisecond)
						}
					})
				}
				time.Sleep(10 * time.Millisecond)
				end(nodes[0]) // the seed, even
				wg.Wait()
				if got := n.used(c, "alice"); got < 600 {
					t.Errorf("%d counted, want 600 or more", got)
				}
			})
		})
	}
}

// What was under way when the connection broke is asked again, unless it gives back.
func TestBrokenWhileUnderWay(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		for range 100 {
			allowed(t, c, "alice")
		}
		nodes[0].hold()
		nodes[1].hold()
		var wg sync.WaitGroup
		wg.Go(func() { askMany(t, c, "alice", 10) })
		back := request("alice")
		back.TokensRequested = -10
		var undecided atomic.Uint64
		for range 10 {
			wg.Go(func() {
				r, err := c.Check(t.Context(), back)
				if err != nil {
					t.Error(err)
				}
				if client.Undecided(r) {
					undecided.Add(1)
				}
			})
		}
		synctest.Wait()
		nodes[0].server.Stop()
		synctest.Wait()
		nodes[0].kill()
		nodes[1].release()
		wg.Wait()
		// All is counted at least once, and what gives back at most once.
		s := c.Stats()
		if got, most := n.used(c, "alice"), uint32(10+s.Retried+10*s.Undecided); got < 10 || got > most {
			t.Errorf("%d counted, want 10 to %d", got, most)
		}
		if s.Retried == 0 || undecided.Load() == 0 || s.Undecided != undecided.Load() {
			t.Errorf("%d undecided, %+v", undecided.Load(), s)
		}
	})
}

// What gives back is not sent to a second node while the first may yet count it, and
// what nobody waits for any more is not sent at all.
func TestStalledSendsNothingTwice(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		askMany(t, c, "alice", 100)
		for _, f := range nodes {
			f.hold()
			f.asked.Store(0)
		}
		back := request("alice")
		back.TokensRequested = -10
		var wg sync.WaitGroup
		undecided := func(reqs ...*weirv1.RateLimitRequest) {
			wg.Go(func() {
				r, err := c.CheckBatch(t.Context(), reqs)
				if err != nil || !client.Undecided(r[0]) {
					t.Errorf("%v, %v", r[0], err)
				}
			})
		}
		undecided(back)
		for range 20 {
			undecided(slices.Repeat([]*weirv1.RateLimitRequest{request("bob")}, 1000)...)
		}
		wg.Wait()
		for _, f := range nodes {
			f.release()
		}
		synctest.Wait()
		if got := n.used(c, "alice"); got != 90 {
			t.Errorf("%d counted, want 90", got)
		}
		if got := nodes[0].asked.Load() + nodes[1].asked.Load(); got > 8*1000 {
			t.Errorf("%d checks were sent, want no more than 4 messages to each", got)
		}
	})
}

// A node that talks nonsense is not believed.
func TestNonsense(t *testing.T) {
	for want, spoil := range map[string]func(m *weirv1.StreamRateLimitsResponse){
		"0 answers to 1 checks":                func(m *weirv1.StreamRateLimitsResponse) { m.Responses = nil },
		"an answer to 77, which was not asked": func(m *weirv1.StreamRateLimitsResponse) { m.Id = 77 },
	} {
		t.Run(want, func(t *testing.T) {
			lending(t, 1000, func(t *testing.T, n *network, l *lender) {
				c := n.client("l:1", client.WithoutDiscovery())
				l.spoil = spoil
				r, err := c.Check(t.Context(), request("alice"))
				if err != nil || !client.Undecided(r) {
					t.Errorf("%v, %v", r, err)
				}
				if problem := c.Stats().Nodes[0].Problem; problem == nil || problem.Error() != want {
					t.Errorf("got %v, want %s", problem, want)
				}
				l.spoil = nil
				time.Sleep(time.Second)
				allowed(t, c, "alice")
			})
		})
	}
}

// A node that accepts checks and never answers is left for another within half of the
// time, and is not asked any more; until it answers again.
func TestStalledNode(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		began := time.Now()
		askMany(t, c, "alice", 20)
		if took := time.Since(began); took != 50*time.Millisecond {
			t.Errorf("took %v", took)
		}
		began = time.Now()
		askMany(t, c, "alice", 100)
		if took := time.Since(began); took != 0 {
			t.Errorf("took %v while b answers", took)
		}
		nodes[0].release()
		synctest.Wait()
		before := nodes[0].asked.Load()
		askMany(t, c, "alice", 100)
		if nodes[0].asked.Load() == before {
			t.Error("a is not asked again")
		}
	})
}

// However little time a check has, it is not given to the same node twice.
func TestStalledNodeInAHurry(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithConnections(2), client.WithTimeout(20*time.Millisecond))
		nodes[0].hold()
		askMany(t, c, "alice", 20)
	})
}

// What gives back has all its time for the one node that is asked.
func TestGivingBackWaits(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		for _, f := range nodes {
			f.hold()
			time.AfterFunc(80*time.Millisecond, f.release)
		}
		back := request("alice")
		back.TokensRequested = -1
		if r, err := c.Check(t.Context(), back); err != nil || client.Undecided(r) {
			t.Errorf("%v, %v", r, err)
		}
	})
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

// A node that never answers again gets a new connection.
func TestStalledForLong(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		r, err := c.Check(t.Context(), request("alice"))
		if err != nil || !client.Undecided(r) {
			t.Errorf("%v, %v", r, err)
		}
		held := nodes[0].holds.Swap(nil) // what is held stays so
		defer close(*held)
		time.Sleep(5 * time.Second)
		allowed(t, c, "alice")
	})
}

// A node that only pauses is not left if there is no other.
func TestPause(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		time.AfterFunc(90*time.Millisecond, nodes[0].release)
		askMany(t, c, "alice", 10)
		if got := n.used(c, "alice"); got != 10 {
			t.Errorf("%d counted, want 10", got)
		}
	})
}

// When all nodes are gone there is an answer at the deadline, later at once, and when
// one is back it decides.
func TestNobodyAnswers(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		open, closed := n.client("a:1"), n.client("a:1", client.WithFailClosed(), client.WithTimeout(30*time.Millisecond))
		for _, f := range nodes {
			f.kill()
		}
		synctest.Wait()
		ask := func(c *client.Client, within time.Duration, want *weirv1.RateLimitResponse) {
			t.Helper()
			began := time.Now()
			r, err := c.Check(t.Context(), request("alice"))
			if took := time.Since(began); err != nil || took != within || r.String() != want.String() || !client.Undecided(r) {
				t.Errorf("%v, %v after %v, want %v after %v", r, err, took, want, within)
			}
		}
		yes := &weirv1.RateLimitResponse{Allowed: true, Source: weirv1.Source_SOURCE_FAIL_OPEN}
		no := &weirv1.RateLimitResponse{
			Source: weirv1.Source_SOURCE_FAIL_CLOSED, DenialReason: weirv1.DenialReason_DENIAL_REASON_UNANSWERED.Enum(),
		}
		ask(open, client.DefaultTimeout, yes)
		ask(closed, 30*time.Millisecond, no)
		batch, err := open.CheckBatch(t.Context(), []*weirv1.RateLimitRequest{request("a"), request("b")})
		if err != nil || len(batch) != 2 || !client.Undecided(batch[1]) {
			t.Errorf("%v, %v", batch, err)
		}
		time.Sleep(time.Second)
		ask(open, 0, yes)
		ask(closed, 0, no)
		if s := open.Stats(); s.Undecided != 3 || s.Nodes[0].Problem == nil {
			t.Errorf("%+v", s)
		}

		n.start("b")
		time.Sleep(5 * time.Second)
		allowed(t, open, "alice")
	})
}

// A node that is started while a check waits answers it.
func TestFirstNodeComesLate(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network, _ []*fakeNode) {
		c, err := client.New("a:1", client.WithDialer(n.dial), client.WithTimeout(900*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		time.AfterFunc(300*time.Millisecond, func() { n.start("a") })
		allowed(t, c, "alice")
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

// More than can wait is refused, if there is somebody who answers.
func TestFull(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithTimeout(45*time.Millisecond)) // after which it is a stall
		nodes[0].hold()
		big := request("alice")
		big.Attributes = map[string]string{"k": strings.Repeat("v", 256)}
		var reqs []*weirv1.RateLimitRequest
		for range 800 {
			reqs = append(reqs, big)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		var undecided, full int
		ask := func() {
			_, err := c.CheckBatch(t.Context(), reqs)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				undecided++
			default:
				refused(t, err, codes.ResourceExhausted, "overloaded: too many checks of this client wait already for the nodes")
				full++
			}
		}
		for range 30 {
			wg.Go(ask)
		}
		wg.Wait()
		if undecided < 8 || undecided > 14 || undecided+full != 30 || c.Stats().Overloaded != uint64(full) {
			t.Errorf("%d undecided, %d refused, %+v", undecided, full, c.Stats())
		}
	})
}

// More than can wait for a node that does not answer is no overload.
func TestFullOfStalled(t *testing.T) {
	bubble(t, 1, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		nodes[0].hold()
		big := request("alice")
		big.Attributes = map[string]string{"k": strings.Repeat("v", 256)}
		reqs := slices.Repeat([]*weirv1.RateLimitRequest{big}, 800)
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() { _, _ = c.CheckBatch(t.Context(), reqs) })
		}
		time.Sleep(60 * time.Millisecond)
		if r, err := c.CheckBatch(t.Context(), reqs); err != nil || !client.Undecided(r[0]) {
			t.Errorf("got %v", err)
		}
		wg.Wait()
	})
}

func TestMembersComeAndGo(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		d := n.start("d")
		n.members(nodes[0], d)
		time.Sleep(14 * time.Second)
		nodes[1].asked.Store(0)
		askMany(t, c, "alice", 100)
		if nodes[1].asked.Load() != 0 || d.asked.Load() == 0 {
			t.Errorf("b, who left, was asked %d times, and d, who came, %d times", nodes[1].asked.Load(), d.asked.Load())
		}
		var got []string
		for _, node := range c.Stats().Nodes {
			got = append(got, node.Address)
		}
		if want := []string{"a:1", "d:1"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}

		e := n.start("e") // and as soon as somebody is missed
		n.members(nodes[0], e)
		d.kill()
		time.Sleep(time.Second)
		askMany(t, c, "alice", 100)
		if e.asked.Load() == 0 {
			t.Error("e is not asked")
		}
	})
}

// A node that left has time to answer what it was asked.
func TestLeftWhileUnderWay(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1", client.WithTimeout(2*time.Second))
		nodes[1].hold()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { allowed(t, c, "alice") })
		}
		synctest.Wait()
		n.members(nodes[0])
		nodes[2].kill() // now it looks for nodes
		time.Sleep(500 * time.Millisecond)
		nodes[1].release()
		wg.Wait()
		if s := c.Stats(); nodes[1].asked.Load() == 0 || s.Retried != 0 || len(s.Nodes) != 1 {
			t.Errorf("%+v", s)
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
		{weirv1.Source_SOURCE_FAIL_OPEN, "r", false}, // by a node
		{weirv1.Source_SOURCE_FAIL_CLOSED, "r", false},
		{weirv1.Source_SOURCE_NO_RULE, "", false},
		{weirv1.Source_SOURCE_OWNER, "r", false},
	} {
		if got := client.Undecided(&weirv1.RateLimitResponse{Source: test.source, RuleId: test.rule}); got != test.want {
			t.Errorf("%v %q: %t", test.source, test.rule, got)
		}
	}
}

// Only members that stay are asked; a node that knows of none changes nothing.
func TestWhoIsAsked(t *testing.T) {
	bubble(t, 3, func(t *testing.T, n *network, nodes []*fakeNode) {
		joins := n.start("d")
		n.keys = []cluster.Node{
			{ID: "b", Address: "b:1", State: cluster.Ready}, {ID: "c", Address: "c:1", State: cluster.Leaving},
			{ID: "d", Address: "d:1", State: cluster.Ready}, {ID: "e", Address: "e:1", State: cluster.Joining},
		}
		c := n.client("a:1")
		known := func() (addresses []string) {
			for _, node := range c.Stats().Nodes {
				addresses = append(addresses, node.Address)
			}
			return addresses
		}
		want := []string{"a:1", "b:1"}
		if got := known(); !slices.Equal(got, want) || joins.asked.Load() != 0 {
			t.Errorf("got %q, want %q", got, want)
		}
		n.mu.Lock()
		n.view = nil
		n.mu.Unlock()
		time.Sleep(14 * time.Second)
		if got := known(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A node that cannot be reached from here, or behind whose address is another one, is
// not asked; nor is the seed under a second address.
func TestUnreachable(t *testing.T) {
	bubble(t, 0, func(t *testing.T, n *network, _ []*fakeNode) {
		seed := n.startAt("a", "forwarded:1")
		stranger := n.startAt("z", "b:1")
		n.members(&fakeNode{id: "a", address: "a:1"}, &fakeNode{id: "b", address: "b:1"}, &fakeNode{id: "c", address: "c:1"})
		c := n.client("forwarded:1")
		askMany(t, c, "alice", 100)
		if seed.asked.Load() != 100 || stranger.asked.Load() != 0 {
			t.Errorf("the seed was asked %d times, the stranger %d times", seed.asked.Load(), stranger.asked.Load())
		}
		var got []string
		for _, node := range c.Stats().Nodes {
			got = append(got, fmt.Sprint(node.Address, node.Problem != nil))
		}
		if want := []string{"b:1true", "c:1true", "forwarded:1false"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
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
