package shard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
)

func bucketPerHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: limit, Window: int64(time.Hour)}
}

// borrow decides one group of one token of each limit, and asks for a loan.
func borrow(s *Shard, lend int64, takes ...Take) Group {
	g := []Group{{Takes: takes, Lend: lend, Tokens: 1}}
	s.Decide(g)
	return g[0]
}

func takeOf(name string, l algorithms.Limit, cost int64) Take {
	return Take{Key: key(name, 0), Limit: l, Cost: cost}
}

func TestLoanShrinksToNoneAsTheLimitNears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		take := takeOf("a", perHour(1000), 1)
		for i, want := range []struct{ lent, remaining int64 }{{124, 875}, {109, 765}} {
			g := borrow(s, 1000, take)
			if g.Loan.Tokens != want.lent || g.Takes[0].Decision.Remaining != want.remaining {
				t.Errorf("loan %d: %+v and %d remaining, want %+v", i, g.Loan, g.Takes[0].Decision.Remaining, want)
			}
		}
		if g := borrow(s, 7, take); g.Loan.Tokens != 7 {
			t.Errorf("asked for 7, lent %+v", g.Loan)
		}
		ask(s, take.Key, take.Limit, 757-8)
		if g := borrow(s, 1000, take); !g.Allowed || g.Loan != (Loan{}) || g.Takes[0].Decision.Remaining != 7 {
			t.Errorf("8 were left: %+v", g)
		}
		ask(s, take.Key, take.Limit, 7)
		if g := borrow(s, 1000, take); g.Allowed || g.Loan != (Loan{}) {
			t.Errorf("a denied request: %+v", g)
		}
	})
}

func TestLoanOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wide, narrow, costly := takeOf("a", perHour(8000), 1), takeOf("b", bucketsPerHour(801), 1), takeOf("c", perHour(3000), 3)
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
			if !g.Allowed || g.Loan.Tokens != tc.lent {
				t.Errorf("%s: %+v, want %d", tc.name, g.Loan, tc.lent)
			}
			for _, take := range tc.takes {
				if left := ask(s, take.Key, take.Limit, 0).Remaining; left != take.Limit.Limit-take.Cost*(1+tc.lent) {
					t.Errorf("%s: %d of %d left", tc.name, left, take.Limit.Limit)
				}
			}
		}
	})
}

// Valid to the end of the least window, but for what a slow clock would add.
func TestLoanIsValidInItsWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		time.Sleep(20 * time.Minute)
		g := borrow(s, 10, takeOf("a", perHour(8000), 1), takeOf("b", bucketsPerHour(8000), 1))
		if got := time.Duration(g.Loan.Until - g.Loan.At); g.Loan.Tokens != 10 || got > time.Minute-time.Minute/1024 || got < time.Minute-time.Minute/1000 {
			t.Errorf("%+v, valid for %v", g.Loan, got)
		}
	})
}

// A loan from a bucket lasts as long as what else is in it, which must not be undone.
func TestNothingIsLentBesideATentativeTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		tentative := takeOf("a", bucketPerHour(800), 50)
		tentative.Tentative = true
		s.Decide([]Group{{Takes: []Take{tentative}}})
		if g := borrow(s, 10, takeOf("a", bucketPerHour(800), 1)); !g.Allowed || g.Loan != (Loan{}) {
			t.Errorf("beside it: %+v", g)
		}
		time.Sleep(undoFor + 1)
		if g := borrow(s, 10, takeOf("a", bucketPerHour(800), 1)); g.Loan.Tokens != 10 {
			t.Errorf("when it stays: %+v", g)
		}
	})
}

func TestPeekLendsNothing(t *testing.T) {
	s := newShard(t)
	g := []Group{{Takes: []Take{takeOf("a", perHour(800), 1)}, Lend: 10, Tokens: 1, Peek: true}}
	if s.Decide(g); !g[0].Allowed || g[0].Loan != (Loan{}) || s.Len() != 0 {
		t.Errorf("%+v, %d counters", g[0], s.Len())
	}
}

func giveBack(s *Shard, at int64, takes ...Take) Group {
	g := []Group{{Takes: takes, LentAt: at}}
	s.Decide(g)
	return g[0]
}

func TestWhatIsLeftOfALoanComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			limit     algorithms.Limit
			lent      int64
			wait      time.Duration
			remaining int64
		}{
			{perHour(800), 99, 0, 769},
			{perHour(800), 99, time.Hour, 769}, // of the window before, which weighs in full still
			{bucketsPerHour(800), 99, time.Minute, 769},
			{bucketPerHour(800), 99, 0, 700}, // what it has lent drains
			{bucketPerHour(800), 99, time.Hour, 800},
		} {
			time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
			s := newShard(t)
			take := takeOf("a", tc.limit, 1)
			g := borrow(s, 100, take)
			if g.Loan.Tokens != tc.lent {
				t.Errorf("%v: %+v, want %d", tc.limit.Algorithm, g.Loan, tc.lent)
			}
			time.Sleep(tc.wait)
			take.Cost = -(g.Loan.Tokens - 30)
			back := giveBack(s, g.Loan.At, take)
			if d := back.Takes[0].Decision; !back.Allowed || back.Takes[0].Source != Owner || d.Remaining != tc.remaining {
				t.Errorf("%v after %v: %d remaining, want %d", tc.limit.Algorithm, tc.wait, d.Remaining, tc.remaining)
			}
		}
	})
}

// A loan that comes back late takes nothing off what others have used since.
func TestLateLoanFreesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixed := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 800, Window: int64(time.Hour)}
		s := newShard(t)
		take := takeOf("a", fixed, 1)
		g := borrow(s, 50, take)
		time.Sleep(time.Hour)
		ask(s, take.Key, fixed, 100)
		take.Cost = -50
		if back := giveBack(s, g.Loan.At, take); back.Takes[0].Decision.Remaining != 700 {
			t.Errorf("%d remaining, want 700", back.Takes[0].Decision.Remaining)
		}
	})
}

// loanStep is one thing that happens in TestLoansNeverAdmitMore; what the numbers mean
// depends on what there is.
type loanStep struct {
	what, loan int
	move       time.Duration
	toEnd      bool  // of the loan
	share      int64 // in 1/8
}

var loanSteps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) loanStep {
	return loanStep{
		what: rapid.IntRange(0, 3).Draw(t, "what"), loan: rapid.IntRange(0, 9).Draw(t, "loan"),
		move:  time.Duration(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1e8), rapid.Int64Range(9e8, 1.1e9)).Draw(t, "move")),
		toEnd: rapid.Bool().Draw(t, "to end"), share: rapid.Int64Range(1, 8).Draw(t, "share"),
	}
}), 1, 40)

// Whatever is borrowed, used within its time and given back: what passes has room, when
// it is used, in a shard without loans.
func TestLoansNeverAdmitMore(t *testing.T) {
	for _, l := range []algorithms.Limit{
		{Algorithm: algorithms.SlidingWindow, Limit: 100, Window: int64(time.Second)},
		{Algorithm: algorithms.FixedWindow, Limit: 100, Window: int64(time.Second)},
		{Algorithm: algorithms.SlidingWindowBuckets, Limit: 100, Window: int64(time.Second), Buckets: 5},
		{Algorithm: algorithms.TokenBucket, Limit: 100, Window: int64(time.Second), Burst: 60},
	} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps := loanSteps.Draw(rt, "steps") // not in the bubble: rapid panics at will
				var problem string
				synctest.Test(t, func(t *testing.T) { problem = checkLoans(t, l, steps) })
				if problem != "" {
					rt.Fatal(problem)
				}
			})
		})
	}
}

func checkLoans(t *testing.T, l algorithms.Limit, steps []loanStep) (problem string) {
	lender, exact := newShard(t), newShard(t)
	type held struct {
		Loan
		left int64
	}
	var loans []held
	use := func(what string, cost int64) {
		if d := ask(exact, key("a", 0), l, cost); !d.Allowed && problem == "" {
			problem = fmt.Sprintf("%s: %d tokens have no room without loans: %+v; %+v", what, cost, d, loans)
		}
	}
	for _, step := range steps {
		time.Sleep(step.move)
		h := &held{}
		if len(loans) > 0 {
			h = &loans[step.loan%len(loans)]
		}
		if end := time.Duration(h.Until - 1 - lender.now()); step.toEnd && end > 0 {
			time.Sleep(end)
		}
		switch {
		case step.what == 0 && lender.now() < h.Until:
			n := (h.left*step.share + 7) / 8
			h.left -= n
			use("a loan", n)
		case step.what == 1:
			giveBack(lender, h.At, takeOf("a", l, -h.left))
			h.left = 0
		case step.what == 2:
			cost := (ask(lender, key("a", 0), l, 0).Remaining*step.share + 7) / 8
			if ask(lender, key("a", 0), l, cost).Allowed {
				use("a take", cost)
			}
		default:
			g := borrow(lender, 50, takeOf("a", l, 1))
			if g.Allowed {
				use("a borrower", 1)
			}
			if g.Loan.Tokens > 0 {
				loans = append(loans, held{g.Loan, g.Loan.Tokens})
			}
		}
	}
	return problem
}
