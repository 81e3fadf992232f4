package shard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
)

func tokenBucketPerHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: limit, Window: int64(time.Hour)}
}

// borrow decides one group of one token of each limit, and asks for a lease.
func borrow(s *Shard, lend int64, takes ...Take) Group {
	g := []Group{{Takes: takes, Lend: lend, Tokens: 1}}
	s.Decide(g)
	return g[0]
}

func takeOf(name string, l algorithms.Limit, cost int64) Take {
	return Take{Key: key(name, 0), Limit: l, Cost: cost}
}

func TestTokenLeaseShrinksToNoneAsTheLimitNears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		take := takeOf("a", perHour(1000), 1)
		for i, want := range []struct{ lent, remaining int64 }{{124, 875}, {109, 765}} {
			g := borrow(s, 1000, take)
			if g.TokenLease.Tokens != want.lent || g.Takes[0].Decision.Remaining != want.remaining {
				t.Errorf("lease %d: %+v and %d remaining, want %+v", i, g.TokenLease, g.Takes[0].Decision.Remaining, want)
			}
		}
		if g := borrow(s, 7, take); g.TokenLease.Tokens != 7 {
			t.Errorf("asked for 7, lent %+v", g.TokenLease)
		}
		ask(s, take.Key, take.Limit, 757-8)
		if g := borrow(s, 1000, take); !g.Allowed || g.TokenLease != (TokenLease{}) || g.Takes[0].Decision.Remaining != 7 {
			t.Errorf("8 were left: %+v", g)
		}
		ask(s, take.Key, take.Limit, 7)
		if g := borrow(s, 1000, take); g.Allowed || g.TokenLease != (TokenLease{}) {
			t.Errorf("a denied request: %+v", g)
		}
	})
}

func TestTokenLeaseOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wide, narrow, costly := takeOf("a", perHour(8000), 1), takeOf("b", slidingBucketsPerHour(801), 1), takeOf("c", perHour(3000), 3)
		shadow, free := takeOf("d", perHour(8000), 1), takeOf("e", perHour(8000), 0)
		shadow.Shadow = true
		for _, tc := range []struct {
			name  string
			takes []Take
			lent  int64
		}{
			{"the least of them", []Take{wide, narrow}, 100},
			{"tokens that cost 3", []Take{wide, costly}, 124},
			{"one is a log", []Take{wide, takeOf("f", logPerHour(800), 1)}, 0},
			{"one is a queue", []Take{wide, takeOf("g", algorithms.Limit{Algorithm: algorithms.LeakyBucket, Limit: 800, Window: int64(time.Hour)}, 1)}, 0},
			{"one is a shadow", []Take{wide, shadow}, 0},
			{"one costs nothing", []Take{wide, free}, 0},
		} {
			s := newShard(t)
			g := borrow(s, 10_000, tc.takes...)
			if !g.Allowed || g.TokenLease.Tokens != tc.lent {
				t.Errorf("%s: %+v, want %d", tc.name, g.TokenLease, tc.lent)
			}
			for _, take := range tc.takes {
				if left := ask(s, take.Key, take.Limit, 0).Remaining; left != take.Limit.Limit-take.Cost*(1+tc.lent) {
					t.Errorf("%s: %d of %d left", tc.name, left, take.Limit.Limit)
				}
			}
		}
	})
}

// A lease is valid to the end of the shortest window, except for the allowance for a slow clock.
func TestTokenLeaseIsValidInItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		time.Sleep(20 * time.Minute)
		g := borrow(s, 10, takeOf("a", perHour(8000), 1), takeOf("b", slidingBucketsPerHour(8000), 1))
		if got := time.Duration(g.TokenLease.Until - g.TokenLease.At); g.TokenLease.Tokens != 10 || got > time.Minute-time.Minute/1024 || got < time.Minute-time.Minute/1000 {
			t.Errorf("%+v, valid for %v", g.TokenLease, got)
		}
	})
}

// A lease from a bucket lasts as long as what else is in it, which must not be undone.
func TestNoLeaseWithTentativeTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		tentative := takeOf("a", tokenBucketPerHour(800), 50)
		tentative.Tentative = true
		s.Decide([]Group{{Takes: []Take{tentative}}})
		if g := borrow(s, 10, takeOf("a", tokenBucketPerHour(800), 1)); !g.Allowed || g.TokenLease != (TokenLease{}) {
			t.Errorf("with it: %+v", g)
		}
		time.Sleep(undoFor + 1)
		if g := borrow(s, 10, takeOf("a", tokenBucketPerHour(800), 1)); g.TokenLease.Tokens != 10 {
			t.Errorf("when it stays: %+v", g)
		}
	})
}

func TestPeekLeasesNothing(t *testing.T) {
	s := newShard(t)
	g := []Group{{Takes: []Take{takeOf("a", perHour(800), 1)}, Lend: 10, Tokens: 1, Peek: true}}
	if s.Decide(g); !g[0].Allowed || g[0].TokenLease != (TokenLease{}) || s.Len() != 0 {
		t.Errorf("%+v, %d counters", g[0], s.Len())
	}
}

func giveBackLent(s *Shard, at int64, takes ...Take) Group {
	g := []Group{{Takes: takes, LentAt: at}}
	s.Decide(g)
	return g[0]
}

func TestUnusedTokensComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			limit     algorithms.Limit
			lent      int64
			wait      time.Duration
			remaining int64
		}{
			{perHour(800), 99, 0, 769},
			{perHour(800), 99, time.Hour, 769}, // of the window before, which weighs in full still
			{slidingBucketsPerHour(800), 99, time.Minute, 769},
			{tokenBucketPerHour(800), 99, 0, 769},
			{tokenBucketPerHour(800), 99, time.Second, 769}, // as nothing of it has drained
			{tokenBucketPerHour(800), 99, time.Hour, 800},
		} {
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
			s := newShard(t)
			take := takeOf("a", tc.limit, 1)
			g := borrow(s, 100, take)
			if g.TokenLease.Tokens != tc.lent {
				t.Errorf("%v: %+v, want %d", tc.limit.Algorithm, g.TokenLease, tc.lent)
			}
			time.Sleep(tc.wait)
			take.Cost = -(g.TokenLease.Tokens - 30)
			back := giveBackLent(s, g.TokenLease.At, take)
			if d := back.Takes[0].Decision; !back.Allowed || back.Takes[0].Source != Owner || d.Remaining != tc.remaining {
				t.Errorf("%v after %v: %d remaining, want %d", tc.limit.Algorithm, tc.wait, d.Remaining, tc.remaining)
			}
		}
	})
}

// Tokens that come back late take nothing off those used since.
func TestLateReturnFreesNoOtherTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixed := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 800, Window: int64(time.Hour)}
		s := newShard(t)
		take := takeOf("a", fixed, 1)
		g := borrow(s, 50, take)
		time.Sleep(time.Hour)
		ask(s, take.Key, fixed, 100)
		take.Cost = -50
		if back := giveBackLent(s, g.TokenLease.At, take); back.Takes[0].Decision.Remaining != 700 {
			t.Errorf("%d remaining, want 700", back.Takes[0].Decision.Remaining)
		}
	})
}

// leaseStep is one thing that happens in TestTokenLeasesNeverAdmitMore; what the numbers mean
// depends on what there is.
type leaseStep struct {
	what, lease int
	move        time.Duration
	toEnd       bool  // of the lease
	share       int64 // in 1/8
}

var leaseSteps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) leaseStep {
	return leaseStep{
		what: rapid.IntRange(0, 3).Draw(t, "what"), lease: rapid.IntRange(0, 9).Draw(t, "lease"),
		move:  time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1e8), rapid.Int64Range(9e8, 1.1e9)).Draw(t, "move")),
		toEnd: rapid.Bool().Draw(t, "to end"), share: rapid.Int64Range(1, 8).Draw(t, "share"),
	}
}), 1, 40)

// For any sequence of leases, uses and returns, every take allowed has room, when it is used, in a shard
// without leases.
func TestTokenLeasesNeverAdmitMore(t *testing.T) {
	for _, l := range []algorithms.Limit{
		{Algorithm: algorithms.SlidingWindow, Limit: 100, Window: int64(time.Second)},
		{Algorithm: algorithms.FixedWindow, Limit: 100, Window: int64(time.Second)},
		{Algorithm: algorithms.SlidingWindowBuckets, Limit: 100, Window: int64(time.Second), Buckets: 5},
		{Algorithm: algorithms.TokenBucket, Limit: 100, Window: int64(time.Second), Burst: 60},
		{Algorithm: algorithms.GCRA, Limit: 9000, Window: int64(time.Hour)},
	} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps := leaseSteps.Draw(rt, "steps") // not in the bubble: rapid panics at will
				var problem string
				synctest.Test(t, func(t *testing.T) { problem = checkLeases(t, l, steps) })
				if problem != "" {
					rt.Fatal(problem)
				}
			})
		})
	}
}

func checkLeases(t *testing.T, l algorithms.Limit, steps []leaseStep) (problem string) {
	lender, exact := newShard(t), newShard(t)
	type held struct {
		TokenLease
		left int64
		node bool
	}
	var leases []*held
	use := func(what string, cost int64) {
		if d := ask(exact, key("a", 0), l, cost); !d.Allowed && problem == "" {
			problem = fmt.Sprintf("%s: %d tokens have no room without leases: %+v; %+v", what, cost, d, leases)
		}
	}
	for _, step := range steps {
		time.Sleep(step.move)
		h := &held{}
		if len(leases) > 0 {
			h = leases[step.lease%len(leases)]
		}
		if end := time.Duration(h.Until - 1 - lender.now()); step.toEnd && end > 0 {
			time.Sleep(end)
		}
		switch {
		case step.what == 0 && lender.now() < h.Until:
			n := (h.left*step.share + 7) / 8
			h.left -= n
			use("a lease", n)
		case step.what == 1 && h.node:
			settle(lender, h.At, takeOf("a", l, h.left))
			h.left = 0
		case step.what == 1:
			giveBackLent(lender, h.At, takeOf("a", l, -h.left))
			h.left = 0
		case step.what == 2 && step.lease == 9: // undone later, but not exactly
			take := takeOf("a", l, step.share)
			take.Tentative = true
			g := []Group{{Takes: []Take{take}}}
			lender.Decide(g)
			time.Sleep(time.Duration(step.share) * time.Millisecond)
			if g[0].Allowed {
				lender.Return(g[0].Takes)
			}
		case step.what == 2:
			cost := (ask(lender, key("a", 0), l, 0).Remaining*step.share + 7) / 8
			if ask(lender, key("a", 0), l, cost).Allowed {
				use("a take", cost)
			}
		case step.share < 5:
			g := borrow(lender, 50, takeOf("a", l, 1))
			if g.Allowed {
				use("a borrower", 1)
			}
			if g.TokenLease.Tokens > 0 {
				leases = append(leases, &held{g.TokenLease, g.TokenLease.Tokens, false})
			}
		default:
			g := []Group{{Takes: []Take{takeOf("a", l, 1)}, Lend: 50, Tokens: 1, ForNode: true}}
			if h.node {
				g[0].Unused = TokenLease{Tokens: h.left, At: h.At}
			}
			lender.Decide(g)
			if g[0].Allowed {
				use("a node", 1)
			}
			// The lender may be some nanoseconds ahead of its clock: of two leases of one instant the second is later.
			if n := g[0].TokenLease.Tokens; n > 0 && h.node && h.left > 0 && g[0].TokenLease.At < h.Until {
				h.TokenLease, h.left = g[0].TokenLease, h.left+n
			} else if n > 0 {
				leases = append(leases, &held{g[0].TokenLease, n, true})
			}
		}
	}
	for _, h := range leases {
		settle(lender, h.At, takeOf("a", l, h.left))
	}
	m := &lender.metrics
	if n := lender.openLeases.Load(); n != 0 || testutil.ToFloat64(m.lent) != testutil.ToFloat64(m.returned)+testutil.ToFloat64(m.used) {
		return fmt.Sprintf("%d leases are out, %v lent, %v returned and %v used", n, testutil.ToFloat64(m.lent), testutil.ToFloat64(m.returned), testutil.ToFloat64(m.used))
	}
	return problem
}

func settle(s *Shard, at int64, t Take) {
	t.Settles, t.Decision.At = true, at
	s.Return([]Take{t})
}

func borrowForNode(s *Shard, take Take, lend int64, rest TokenLease) Group {
	g := []Group{{Takes: []Take{take}, Lend: lend, Tokens: take.Cost, ForNode: true, Unused: rest}}
	s.Decide(g)
	return g[0]
}

// Nodes have at most half a percent of a limit on lease, together, which counts as remaining until it is
// known to be used.
func TestNodesAreLentAHalfPercent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, l := range []algorithms.Limit{perHour(2000), slidingBucketsPerHour(2000), tokenBucketPerHour(2000)} {
			s := newShard(t)
			take := takeOf("a", l, 1)
			first := borrowForNode(s, take, 7, TokenLease{})
			second := borrowForNode(s, take, 1000, TokenLease{})
			if first.TokenLease.Tokens != 7 || second.TokenLease.Tokens != 3 || first.TokenLease.At == second.TokenLease.At {
				t.Fatalf("%v: lent %+v and %+v", l.Algorithm, first.TokenLease, second.TokenLease)
			}
			if g := borrowForNode(s, take, 1, TokenLease{}); g.TokenLease.Tokens != 0 || g.Takes[0].Decision.Remaining != 1997 {
				t.Errorf("%v: when 10 are out: %+v", l.Algorithm, g)
			}
			// 4 of the first were used, and the others go on in a new lease.
			g := borrowForNode(s, take, 1000, TokenLease{Tokens: 3, At: first.TokenLease.At})
			if g.TokenLease.Tokens != 4 || g.Takes[0].Decision.Remaining != 2000-8 {
				t.Errorf("%v: renewed: %+v", l.Algorithm, g)
			}
			settle(s, first.TokenLease.At, takeOf("a", l, 3)) // which is over
			if left := ask(s, take.Key, l, 0).Remaining; left != 2000-8 {
				t.Errorf("%v: %d remaining", l.Algorithm, left)
			}
			settle(s, g.TokenLease.At, takeOf("a", l, 5))
			settle(s, second.TokenLease.At, takeOf("a", l, 3))
			settle(s, second.TokenLease.At, takeOf("a", l, 3))
			if left := ask(s, take.Key, l, 0).Remaining; left != 2000-10 || s.openLeases.Load() != 0 {
				t.Errorf("%v: %d remaining in the end, %d leases", l.Algorithm, left, s.openLeases.Load())
			}
		}
	})
}

// A lease that is never settled counts as used when it is over, and is forgotten; so are those of a
// counter that is reset, or of which there would be too many.
func TestTokenLeasesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		p, l := &s.partitions[0], tokenBucketPerHour(1<<20)
		for i := range maxAccounts + 1 {
			take := takeOf("a", l, 1)
			take.Key = key("a", i)
			if g := borrowForNode(s, take, 2, TokenLease{}); (g.TokenLease.Tokens > 0) != (i < maxAccounts) {
				t.Fatalf("counter %d: %+v", i, g)
			}
		}
		for i := range maxAccountLeases {
			if g := borrow(s, 1, takeOf("a", l, 1)); (g.TokenLease.Tokens > 0) != (i < maxAccountLeases-1) {
				t.Fatalf("lease %d: %+v", i, g)
			}
		}
		s.Decide([]Group{{Reset: true, Takes: []Take{takeOf("a", l, 1)}}})
		if n := s.openLeases.Load(); n != maxAccounts-1 {
			t.Errorf("%d leases after a reset, want %d", n, maxAccounts-1)
		}
		time.Sleep(nodeLeaseTime + settleFor)
		s.sweep(p)
		if p.memory != nil || s.openLeases.Load() != 0 || testutil.ToFloat64(s.metrics.used) != 2*maxAccounts+maxAccountLeases-1 {
			t.Errorf("%+v, %d leases, %v used", p.memory, s.openLeases.Load(), testutil.ToFloat64(s.metrics.used))
		}
	})
}

// Tokens leased from a bucket when its partition is sealed may be used until their time is over, although
// other nodes that then decide do not know the lease: the copied state has them counted for that time.
func TestTokenLeasesOutliveLender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10_000, Window: int64(10 * time.Second)}
		lender, exact := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20}), newShard(t)
		k := key("a", 0)
		first := borrowForNode(lender, takeOf("a", l, 30), 30, TokenLease{})
		second := borrowForNode(lender, takeOf("a", l, 10), 20, TokenLease{})
		settle(lender, first.TokenLease.At, takeOf("a", l, 30)) // of which the second one has its time
		ask(exact, k, l, 40)
		if first.TokenLease.Tokens != 30 || second.TokenLease.Tokens != 20 {
			t.Fatalf("lent %+v and %+v", first.TokenLease, second.TokenLease)
		}
		lender.Seal(0)
		lender.Unseal(0)
		time.Sleep(time.Duration(second.TokenLease.Until-lender.now()) - 1)
		ask(exact, k, l, 20)
		if got, want := ask(lender, k, l, 0).Remaining, ask(exact, k, l, 0).Remaining; got > want || got < want-1 {
			t.Errorf("%d remaining, %d without leases", got, want)
		}
	})
}

// Leased tokens stay in a bucket until they are used or their time is over, although other tokens, by which
// the time was found, were given back.
func TestLentTokensDoNotDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10_000, Window: int64(10 * time.Second)}
		lender, exact := newShard(t), newShard(t)
		k := key("a", 0)
		first, second := borrow(lender, 50, takeOf("a", l, 1)), borrow(lender, 50, takeOf("a", l, 1))
		ask(exact, k, l, 2)
		giveBackLent(lender, first.TokenLease.At, takeOf("a", l, -first.TokenLease.Tokens))
		time.Sleep(time.Duration(second.TokenLease.Until-lender.now()) - 1)
		if d := ask(exact, k, l, second.TokenLease.Tokens); !d.Allowed || second.TokenLease.Tokens != 50 {
			t.Fatalf("%+v: %+v", second.TokenLease, d)
		}
		if got, want := ask(lender, k, l, 0).Remaining, ask(exact, k, l, 0).Remaining; got != want {
			t.Errorf("%d remaining, %d without leases", got, want)
		}
		time.Sleep(10*time.Millisecond + 1) // it drains
		if got := ask(lender, k, l, 0).Remaining; got != 10_000-40 {
			t.Errorf("%d remaining 10 ms later", got)
		}
	})
}
