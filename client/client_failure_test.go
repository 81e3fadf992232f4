package client_test

import (
	"context"
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

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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

// Calls that give tokens back are not sent to a second node while the first may yet count them, and
// abandoned calls are not sent at all.
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
		synctest.Wait() // it is on its way before the others, which may not get there
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
				c := n.client("l:1", client.WithoutDiscovery(), client.WithTimeout(client.DefaultTimeout/2)) // it is over before there is another stream
				l.setSpoil(spoil)
				r, err := c.Check(t.Context(), request("alice"))
				if err != nil || !client.Undecided(r) {
					t.Errorf("%v, %v", r, err)
				}
				if problem := c.Stats().Nodes[0].Problem; problem == nil || problem.Error() != want {
					t.Errorf("got %v, want %s", problem, want)
				}
				l.setSpoil(nil)
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
func TestStalledNodeAndShortDeadline(t *testing.T) {
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
func TestNoNodeAnswers(t *testing.T) {
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
			Source: weirv1.Source_SOURCE_FAIL_CLOSED, DenialReason: weirv1.DenialReason_DENIAL_REASON_UNDECIDED.Enum(),
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

// Calls beyond the queue's bound are refused, if a node answers.
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

// What is not answered in time by a node that answers others is refused: the node is busy, and
// overload must be no way around the limits. So is what begins after its deadline.
func TestBusyIsNotSilent(t *testing.T) {
	bubble(t, 2, func(t *testing.T, n *network, nodes []*fakeNode) {
		c := n.client("a:1")
		refused := func(ctx context.Context, took time.Duration) {
			begin := time.Now()
			if r, err := c.Check(ctx, request("alice")); status.Code(err) != codes.ResourceExhausted || time.Since(begin) != took {
				t.Errorf("%v, %v after %v, want to be refused after %v", r, err, time.Since(begin), took)
			}
		}
		var wg sync.WaitGroup
		for _, f := range nodes {
			f.hold()
		}
		soon, cancel := context.WithTimeout(t.Context(), client.DefaultTimeout)
		defer cancel()
		for range 2 { // so that both nodes have two
			wg.Go(func() { refused(soon, client.DefaultTimeout) })
			synctest.Wait() // the next call goes to the node with fewer calls
			wg.Go(func() { refused(t.Context(), client.DefaultTimeout+time.Second) })
			synctest.Wait()
		}
		for _, f := range nodes {
			held := f.holds.Swap(nil) // what comes now is decided at once
			t.Cleanup(func() { close(*held) })
		}
		answering, stop := context.WithCancel(t.Context())
		wg.Go(func() {
			for answering.Err() == nil {
				for range 20 {
					allowed(t, c, "bob")
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
		time.Sleep(2 * time.Second)
		refused(soon, 0)
		stop()
		wg.Wait()
		if s := c.Stats(); s.Undecided != 0 || s.Overloaded != 5 {
			t.Errorf("%+v", s)
		}
	})
}
