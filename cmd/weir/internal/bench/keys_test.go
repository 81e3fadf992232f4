package bench

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func newTestKeys(t rapid.TB, distribution string, n int64) *Keys {
	t.Helper()
	k, err := NewKeys(distribution, n)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKeysAreInRange: every distribution draws existing keys only, and a caller the same
// ones every time.
func TestKeysAreInRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.Int64Range(1, 10), rapid.Just(int64(MaxKeys))).Draw(t, "keys")
		k := newTestKeys(t, rapid.SampledFrom([]string{Uniform, Hot, Sequential}).Draw(t, "distribution"), n)
		callers := rapid.IntRange(1, MaxCallers).Draw(t, "callers")
		caller := rapid.IntRange(0, callers-1).Draw(t, "caller")
		draw, again := k.Draw(caller, callers), k.Draw(caller, callers)
		for range 100 {
			key := draw()
			if key >= uint64(n) {
				t.Fatalf("drew key %d of %d", key, n)
			}
			if twin := again(); twin != key {
				t.Fatalf("drew %d, and then %d", key, twin)
			}
		}
	})
	zipf := newTestKeys(t, Zipf, 3)
	if most := slices.Max(zipf.table); most != 2 {
		t.Errorf("zipf of 3 keys draws at most %d, want 2", most)
	}
}

// TestDistributions compares how often keys are drawn with how often they should be.
func TestDistributions(t *testing.T) {
	const n, draws = 10, 1 << 20
	var weights [n]float64
	var sum float64
	for key := range weights {
		weights[key] = math.Pow(float64(key+1), -1.1)
		sum += weights[key]
	}
	tests := map[string]func(key int) float64{
		Uniform:    func(int) float64 { return 1. / n },
		Sequential: func(int) float64 { return 1. / n },
		Zipf:       func(key int) float64 { return weights[key] / sum },
		Hot: func(key int) float64 {
			if key == 0 {
				return 0.9 + 0.1/n
			}
			return 0.1 / n
		},
	}
	for _, distribution := range Distributions() {
		draw := newTestKeys(t, distribution, n).Draw(0, 1)
		var drawn [n]float64
		for range draws {
			drawn[draw()]++
		}
		for key, count := range drawn {
			got, want := count/draws, tests[distribution](key)
			if got < want-0.003 || got > want+0.003 { // more than 6 standard deviations
				t.Errorf("%s: key %d in %.4f of all draws, want %.4f", distribution, key, got, want)
			}
		}
	}
}

// TestSequentialCallersShareTheKeys: each begins at its own place, and goes round.
func TestSequentialCallersShareTheKeys(t *testing.T) {
	k := newTestKeys(t, Sequential, 10)
	var got []uint64
	for caller := range 2 {
		draw := k.Draw(caller, 2)
		for range 6 {
			got = append(got, draw())
		}
	}
	if want := []uint64{0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9, 0}; !slices.Equal(got, want) {
		t.Errorf("got %d, want %d", got, want)
	}
}

// TestCallersDrawDifferentKeys: two callers do not ask about the same keys at the same time.
func TestCallersDrawDifferentKeys(t *testing.T) {
	for _, distribution := range []string{Uniform, Zipf} {
		k := newTestKeys(t, distribution, MaxKeys)
		same, one, other := 0, k.Draw(0, 2), k.Draw(1, 2)
		for range 1000 {
			if one() == other() {
				same++
			}
		}
		if same > 100 { // a few of zipf's first keys
			t.Errorf("%s: %d of 1000 draws are the same", distribution, same)
		}
	}
}

// TestSeen: a key counts once, however many callers draw it how often, without locks.
func TestSeen(t *testing.T) {
	const n = 130
	s := newSeen(n)
	parallel(4, func(int) {
		for key := uint64(0); key < n; key += 3 {
			s.add(key)
			s.add(key)
		}
	})
	if got := s.keys.Load(); got != (n+2)/3 {
		t.Errorf("%d keys", got)
	}
	var none *seen
	none.add(1)
}
