package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

func TestThreeProcessesShareEveryLimitExactly(t *testing.T) {
	// This test is about exact counts, not speed: no check may be allowed undecided.
	_, nodes := startThree(t, rulesPerYear(1000), "--peer-timeout", "4s")

	t.Run("one key", func(t *testing.T) {
		// Nodes refuse what would wait for too long, as thousands of checks at once do where processors are busy: so few callers.
		const callers, each, limit = 60, 80, 1000
		var counts tally
		var asked, allowed atomic.Int64
		ask := func(i int) {
			resp, err := nodes[i%3].Client.Check(t.Context(), user("one"))
			counts.add(resp, err)
			asked.Add(1)
			if resp.GetAllowed() {
				allowed.Add(1)
			}
		}
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				for range each {
					ask(i)
				}
			})
		}
		wg.Wait()
		// What a node was lent that was not asked any more it gives back after 20 ms. Until then others were denied that.
		process.Await(t, process.Patience, func() error {
			for i := range nodes {
				ask(i)
			}
			if n := allowed.Load(); n < limit {
				return fmt.Errorf("%d of %d allowed, want %d", n, asked.Load(), limit)
			}
			return nil
		})
		for i := range 100 {
			ask(i)
		}
		counts.noErrors(t)
		if allowed.Load() != limit || counts.failOpen.Load() != 0 {
			t.Errorf("%d of %d allowed, %d of them undecided; want %d and 0", allowed.Load(), asked.Load(), counts.failOpen.Load(), limit)
		}
	})

	t.Run("2000 keys", func(t *testing.T) {
		// Three rounds of 400 tokens each, from all nodes at once: two fit.
		const keys, batch = 2000, 500
		var allowed [keys]atomic.Int64
		var wg sync.WaitGroup
		for _, n := range nodes {
			for begin := 0; begin < keys; begin += batch {
				wg.Go(func() {
					reqs := make([]*weirv1.RateLimitRequest, batch)
					for i := range reqs {
						reqs[i] = user(fmt.Sprint("key-", begin+i))
						reqs[i].TokensRequested = 400
					}
					ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
					defer cancel()
					answers, err := n.Client.CheckBatch(ctx, reqs)
					if err != nil {
						t.Error(err)
						return
					}
					for i, a := range answers {
						if a.GetSource() != weirv1.Source_SOURCE_OWNER {
							t.Errorf("key %d: %v", begin+i, a.GetSource())
						}
						if a.GetAllowed() {
							allowed[begin+i].Add(1)
						}
					}
				})
			}
		}
		wg.Wait()
		for i := range allowed {
			if got := allowed[i].Load(); got != 2 {
				t.Errorf("key %d: %d of 3 allowed, want 2", i, got)
			}
		}
	})
}

func TestKilledOwner(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	_, nodes := startThree(t, rulesPerYear(1_000_000), "--peer-timeout", "4s")
	victim, others := nodes[2], nodes[:2]
	var counts atomic.Pointer[tally]
	counts.Store(new(tally))
	stop := load(others, &counts)
	defer stop()
	pause(t, time.Second)
	before := newTally(&counts)
	before.noErrors(t)
	before.decided(t)

	victim.Kill()
	killed := time.Now()
	process.AwaitMembers(t, process.Patience, others...)
	t.Logf("the next owner decides after %v", time.Since(killed).Round(100*time.Millisecond))
	during := newTally(&counts)
	during.noErrors(t)
	during.decided(t)
	if during.provisional.Load() == 0 {
		t.Error("no standby has decided while the owner was dead")
	}

	pause(t, time.Second)
	after := newTally(&counts)
	after.noErrors(t)
	after.decided(t)

	victim.Restart()
	process.AwaitMembers(t, process.Patience, nodes...)
	pause(t, time.Second)
	back := newTally(&counts)
	back.noErrors(t)
	stop()
	for _, n := range victim.Nodes().GetNodes() {
		if n.GetId() == victim.ID && n.GetIncarnation() != 2 {
			t.Errorf("%s has incarnation %d, want 2", n.GetId(), n.GetIncarnation())
		}
	}
	t.Logf("while the owner was dead: %d decided by owners, %d by standbys, %d allowed undecided; %d while it came back",
		during.owner.Load(), during.provisional.Load(), during.failOpen.Load(), back.failOpen.Load())
}

// An owner that is killed before anything was asked is missed by no limit.
func TestNextOwnerEnforcesTheLimit(t *testing.T) {
	t.Parallel()
	_, nodes := startThree(t, rulesPerYear(3), "--peer-timeout", "4s")
	nodes[2].Kill()
	process.AwaitMembers(t, process.Patience, nodes[:2]...)
	for i := range 30 {
		allowed := 0
		for j := range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
			resp, err := nodes[j%2].Client.Check(ctx, user(fmt.Sprint("user-", i)))
			cancel()
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetAllowed() {
				allowed++
			}
		}
		if allowed != 3 {
			t.Errorf("user %d: %d of 10 allowed, want 3", i, allowed)
		}
	}
}

func TestInstantRestartUnderTheSameID(t *testing.T) {
	_, nodes := startThree(t, rulesPerYear(1000))
	nodes[1].Kill()
	nodes[1].Restart()
	process.AwaitMembers(t, process.Patience, nodes...)
}

func TestNodeThatLeavesIsNotMissed(t *testing.T) {
	t.Parallel()
	_, nodes := startThree(t, rulesPerYear(1_000_000), "--peer-timeout", "4s")
	var counts atomic.Pointer[tally]
	counts.Store(new(tally))
	stop := load(nodes[:2], &counts)
	defer stop()
	pause(t, 500*time.Millisecond)
	began := time.Now()
	nodes[2].Signal(syscall.SIGTERM)
	if code := nodes[2].Wait(process.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
	t.Logf("it is gone after %v", time.Since(began).Round(time.Millisecond))
	process.AwaitMembers(t, process.Patience, nodes[:2]...)
	pause(t, 500*time.Millisecond)
	stop()
	counts.Load().noErrors(t)
	counts.Load().decided(t)
}

// A node that was paused for longer than its lease finds that the cluster has gone
// on without it, and comes back. In brief TestKilledOwner and TestUnreachableMember have the halves of it.
func TestPausedOwnerComesBack(t *testing.T) {
	testform.NotInBrief(t)
	// A node that is stopped is waited for, and none that is only busy may be taken for one.
	_, nodes := startThree(t, rulesPerYear(1_000_000), "--peer-timeout", "500ms")
	// The first member has all partitions until the others have fetched their shares. While it ends, all
	// of its partitions are decided provisionally.
	awaitSettled(t, nodes...)
	var counts atomic.Pointer[tally]
	counts.Store(new(tally))
	stop := load(nodes[:2], &counts)
	defer stop()
	nodes[2].Signal(syscall.SIGSTOP)
	process.AwaitMembers(t, process.Patience, nodes[:2]...)
	newTally(&counts).noErrors(t)
	pause(t, 500*time.Millisecond)
	without := newTally(&counts)
	without.noErrors(t)
	without.decided(t)
	nodes[2].Signal(syscall.SIGCONT)
	process.AwaitMembers(t, process.Patience, nodes...)
	stop()
	counts.Load().noErrors(t)
}
