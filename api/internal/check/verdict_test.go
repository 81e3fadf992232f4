package check

import (
	"testing"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// Of two that deny, the one that was asked decides: it knows when to come again.
func TestDecidedDenialGoesFirst(t *testing.T) {
	silent := shard.Take{OnFailure: shard.FailClosed}
	denied := shard.Take{Source: shard.Owner}
	for want, takes := range [][]shard.Take{{denied, silent}, {silent, denied}} {
		if got := judge(takes); got != (Verdict{Source: ByOwner, By: want}) {
			t.Errorf("%+v, want the take %d", got, want)
		}
	}
}

func TestTighter(t *testing.T) {
	type decision = algorithms.Decision
	// The tighter one first.
	for i, pair := range [][2]decision{
		{{RetryAt: 5, Remaining: 9}, {Allowed: true, RetryAt: 9}},
		{{RetryAt: 5, Remaining: 9}, {RetryAt: 4, Remaining: 0, ResetAt: 99}},
		{{RetryAt: algorithms.Never}, {RetryAt: 4, ResetAt: 99}},
		{{RetryAt: 4, Remaining: 1}, {RetryAt: 4, Remaining: 2, ResetAt: 99}},
		{{RetryAt: 4, Remaining: 1, ResetAt: 9}, {RetryAt: 4, Remaining: 1, ResetAt: 8}},
		{{Allowed: true, Remaining: 1}, {Allowed: true, Remaining: 2, RetryAt: 9, ResetAt: 9}},
		{{Allowed: true, Remaining: 1, ResetAt: 9}, {Allowed: true, Remaining: 1, RetryAt: 9, ResetAt: 8}},
	} {
		a, b := &shard.Take{Decision: pair[0]}, &shard.Take{Decision: pair[1]}
		if !tighter(a, b) || tighter(b, a) || tighter(a, a) {
			t.Errorf("pair %d: a before b %t, b before a %t, a before itself %t", i, tighter(a, b), tighter(b, a), tighter(a, a))
		}
	}
}

func TestCeilSeconds(t *testing.T) {
	for ns, want := range map[int64]int64{0: 0, 1: 1, 999_999_999: 1, 1_000_000_000: 1, 1_000_000_001: 2, 60_000_000_000: 60} {
		if got := CeilSeconds(ns); got != want {
			t.Errorf("%d ns: %d s, want %d", ns, got, want)
		}
	}
}
