package cluster

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/shard"
)

// flood is many callers of one counter, which wait for each answer, and then for 100 µs.
type flood struct {
	c       *testCluster
	hot     shard.Take
	granted atomic.Int64
	all     sync.WaitGroup
}

// ask asks a node, and returns what remains by its answer.
func (f *flood) ask(node int) int64 {
	groups := []shard.Group{{Takes: []shard.Take{f.hot}}}
	f.c.nodes[node].router.Decide(context.Background(), groups)
	if groups[0].Allowed {
		f.granted.Add(1)
	}
	return groups[0].Takes[0].Decision.Remaining
}

// run adds a caller that asks for so long the nodes in turn, and returns how far what remains has risen at most from one answer
// to the next, has been above what there was when it asked, and below what there was when it was answered.
func (f *flood) run(lasts time.Duration, nodes ...int) (rise, above, below *int64) {
	rise, above, below = new(int64), new(int64), new(int64)
	f.all.Go(func() {
		ends, last := time.Now().Add(lasts), f.hot.Limit.Limit
		for i := 0; time.Now().Before(ends); i++ {
			before := f.hot.Limit.Limit - f.granted.Load()
			told := f.ask(nodes[i%len(nodes)])
			if i > 0 {
				*rise, *above = max(*rise, told-last), max(*above, told-before)
				*below = max(*below, f.hot.Limit.Limit-f.granted.Load()-told)
			}
			last = told
			pass(100 * time.Microsecond)
		}
	})
	return rise, above, below
}

// What remains does not rise for a caller that stays with one node, with many other callers on all nodes. For one that asks
// all nodes in turn it rises by no more than nodes hold on lease, which is half a percent of the limit, and what others take
// while a node learns of them: less than as much again. No answer is too low by more than the checks that the owner has
// counted and that are not answered yet.
func TestRemainingAmongMany(t *testing.T) {
	for _, a := range algorithms.Names() {
		algorithm, _ := algorithms.Parse(a)
		if algorithm == algorithms.SlidingWindowLog { // its limits are too small for a flood
			continue
		}
		if testform.RaceEnabled && algorithm != algorithms.SlidingWindow {
			continue
		}
		for name, tc := range map[string]struct {
			limit   int64
			owner   time.Duration // what a take of a peer costs it, so that others ask while an answer is on its way
			callers [3]int
		}{
			"one node":        {100_000, 20 * time.Microsecond, [3]int{8, 0, 0}},
			"mostly an owner": {100_000, 20 * time.Microsecond, [3]int{3, 20, 3}},
			"hardly a node":   {100_000, 20 * time.Microsecond, [3]int{2, 30, 0}},
			"all":             {100_000, 20 * time.Microsecond, [3]int{8, 8, 8}},
			"two borrowers":   {100_000, 20 * time.Microsecond, [3]int{3, 0, 20}},
			"a slow owner":    {20_000, 200 * time.Microsecond, [3]int{8, 0, 2}},
		} {
			t.Run(a+"/"+name, func(t *testing.T) {
				inCluster(t, func(t *testing.T, c *testCluster) {
					f := &flood{c: c, hot: shard.Take{Key: c.ownedBy(c.nodes[1], 0), Cost: 1, Limit: limitOf(algorithm, tc.limit)}}
					c.nodes[1].perTake.Store(int64(tc.owner))
					const lasts = 200 * time.Millisecond
					var stays [3]*int64
					for n := range tc.callers {
						for range tc.callers[n] {
							f.run(lasts, n)
						}
						stays[n], _, _ = f.run(lasts, n)
					}
					rise, above, below := f.run(lasts, 0, 1, 2, 0, 2)
					f.all.Wait()
					t.Logf("rise on one node %d %d %d, between nodes %d, above %d, below %d, %d granted",
						*stays[0], *stays[1], *stays[2], *rise, *above, *below, f.granted.Load())
					if max(*stays[0], *stays[1], *stays[2]) > 0 {
						t.Errorf("what remains rises for callers that stay with a node by %d, %d and %d", *stays[0], *stays[1], *stays[2])
					}
					if most := tc.limit / 100; *rise > most || *above > most || *below > most/10 {
						t.Errorf("what remains rises by %d, and is above what there is by %d and below it by %d", *rise, *above, *below)
					}
				})
			})
		}
	}
}

// A check after a pause, when the counter is hot no more, goes to the owner, which does not know yet what this node has used of
// its lease. What remains does not rise by that.
func TestRemainingAfterAPause(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		f := &flood{c: c, hot: take(c.ownedBy(c.nodes[1], 0), 100_000, 1)}
		for range 20 {
			for range 8 {
				f.run(50*time.Millisecond, 0)
			}
			f.all.Wait()
			last := f.ask(0)
			pass(2 << intervalShift) // two whole intervals without a check
			if told := f.ask(0); told > last {
				t.Errorf("%d remaining after %d", told, last)
			}
		}
	})
}

// What a node says remains by an answer of the owner leaves out what the node has used of its lease meanwhile, whether the
// owner is just being told of a part of it or not.
func TestOwnersAnswersLeaveOutWhatIsUsed(t *testing.T) {
	const at = 100 * int64(time.Minute)
	answer := func(after, remaining int64) *shard.Take {
		return &shard.Take{Limit: perHour(1000), Cost: 1, Decision: algorithms.Decision{Allowed: true, At: at + after, Remaining: remaining, ResetAt: at + int64(time.Hour)}}
	}
	b, first := &borrowed{}, answer(0, 990)
	b.borrow(first, shard.TokenLease{Tokens: 10, At: at, Until: at + 50e9}, 0, 1)
	last := first.Decision.Remaining
	told := func(what string, remaining, want int64) {
		t.Helper()
		if remaining != want || remaining > last {
			t.Errorf("%s: %d remaining after %d, want %d", what, remaining, last, want)
		}
		last = remaining
	}
	spend := func(times int) {
		for range times {
			b.spend(first, 2)
			told("from the lease", first.Decision.Remaining, last-1)
		}
	}
	hears := func(what string, after, remaining, want int64) {
		t.Helper()
		one := answer(after, remaining)
		b.heed(&one.Decision)
		b.tell(one, 2)
		told(what, one.Decision.Remaining, want)
	}
	spend(2)
	hears("the owner knows of no use", 1, 989, 987)
	b.telling = b.asking(2).At > 0
	spend(6)
	hears("it is being told of 2", 2, 986, 980)
	b.telling = false
	b.borrow(answer(1, 987), shard.TokenLease{Tokens: 20, At: at + 1, Until: at + 50e9}, 2, 3)
	spend(5)
	b.telling = b.asking(4).At > 0
	spend(2)
	b.telling = false
	b.reported() // and it lends no more
	hears("it was told of 11", 3, 974, 972)
	spend(1)
}

// Answers that come late, out of order or not at all do not raise what a node says remains.
func TestLateAnswersDoNotRaiseWhatRemains(t *testing.T) {
	const at = 100 * int64(time.Minute)
	answer := func(after, remaining int64) *shard.Take {
		return &shard.Take{Limit: perHour(1000), Cost: 1, Decision: algorithms.Decision{Allowed: true, At: at + after, Remaining: remaining, ResetAt: at + int64(time.Hour)}}
	}
	for name, late := range map[string]func(b *borrowed) *shard.Take{
		"an answer to what was asked before the lease was settled": func(b *borrowed) *shard.Take {
			b.settled(5)
			one := answer(1, 989)
			b.heed(&one.Decision)
			b.tell(one, 4)
			return one
		},
		"answers of one instant, the last one first, before the one that renews": func(b *borrowed) *shard.Take {
			b.telling = b.asking(3).At > 0
			last, first, renewal := answer(9, 980), answer(9, 981), answer(9, 982)
			for _, one := range []*shard.Take{last, first} {
				b.heed(&one.Decision)
				b.tell(one, 4)
			}
			if first.Decision.Remaining > last.Decision.Remaining {
				t.Errorf("%d remaining after %d", first.Decision.Remaining, last.Decision.Remaining)
			}
			b.telling = false
			b.borrow(renewal, shard.TokenLease{Tokens: 5, At: at + 9, Until: at + 50e9}, 4, 6)
			b.spend(renewal, 7)
			if renewal.Decision.Remaining >= last.Decision.Remaining {
				t.Errorf("%d remaining after %d", renewal.Decision.Remaining, last.Decision.Remaining)
			}
			return renewal
		},
		"no answer to a report": func(b *borrowed) *shard.Take {
			b.telling = b.asking(3).At > 0
			b.telling = false
			b.lostReport()
			next := answer(9, 990)
			b.borrow(next, shard.TokenLease{Tokens: 5, At: at + 9, Until: at + 50e9}, 4, 6)
			b.tell(next, 4)
			return next
		},
		"a lease that is over here, and not yet for the owner": func(b *borrowed) *shard.Take {
			next := answer(9, 990)
			if old := b.borrow(next, shard.TokenLease{Tokens: 5, At: at + 9, Until: at + 50e9}, b.leaseEnds, b.leaseEnds); len(old) != 1 {
				t.Errorf("the old lease is not settled: %+v", old)
			}
			b.tell(next, b.leaseEnds-1)
			return next
		},
	} {
		b, spent := &borrowed{}, answer(0, 990)
		b.borrow(spent, shard.TokenLease{Tokens: 10, At: at, Until: at + 50e9}, 0, 1)
		for range 4 {
			b.spend(spent, 2)
		}
		if told := late(b).Decision.Remaining; told > spent.Decision.Remaining {
			t.Errorf("%s: %d remaining after %d", name, told, spent.Decision.Remaining)
		}
	}
}
