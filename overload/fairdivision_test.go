package overload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// sortedLevel is fairLevel by sorting: water rises in vessels as wide as their weights, and as high as work by weight, and fills the lowest
// first.
func sortedLevel(demands []demand, work float64) float64 {
	sorted := slices.SortedFunc(slices.Values(demands), func(a, b demand) int { return cmp.Compare(a.work/a.weight, b.work/b.weight) })
	var width float64
	for _, d := range sorted {
		width += d.weight
	}
	var level float64
	for _, d := range sorted {
		height := d.work / d.weight
		more := (height - level) * width
		if more > work {
			return level + work/width
		}
		level, work = height, work-more
		width -= d.weight
	}
	return math.Inf(1)
}

// given returns what each domain has at a level, and the sum.
func given(demands []demand, level float64) (each []float64, sum float64) {
	for _, d := range demands {
		each = append(each, d.most(level))
		sum += d.most(level)
	}
	return each, sum
}

func TestFairLevel(t *testing.T) {
	for _, tc := range []struct {
		demands []demand
		work    float64
		want    []float64
	}{
		{[]demand{{40, 1}, {4, 1}}, 10, []float64{6, 4}},
		{[]demand{{40, 1}, {4, 1}}, 6, []float64{3, 3}},
		{[]demand{{40, 1}, {40, 3}, {1, 1}}, 9, []float64{2, 6, 1}},
		{[]demand{{40, 1}, {3, 3}, {1, 1}}, 9, []float64{5, 3, 1}},
		{[]demand{{5, 1}, {4, 1}}, 9.5, []float64{5, 4}},
		{[]demand{{5, 0.01}, {4, 100}}, 0, []float64{0, 0}},
		{[]demand{{5, 1}}, -1, []float64{0}},
		{nil, 3, nil},
	} {
		level := fairLevel(slices.Clone(tc.demands), tc.work)
		for i, d := range tc.demands {
			if got := d.most(level); math.Abs(got-tc.want[i]) > 1e-9 {
				t.Errorf("%v for %v: %v has %v, want %v", tc.work, tc.demands, d, got, tc.want[i])
			}
		}
	}
}

// Random demands are divided as by sorting, and no domain can have more without less for one that has no more than it by weight.
func TestFairLevelIsThatOfSorting(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 3000 {
		demands := make([]demand, 1+random.IntN(40))
		var all float64
		for i := range demands {
			demands[i] = demand{math.Exp(8 * random.Float64()), []float64{1, 1, 1, 3, 0.01, 100}[random.IntN(6)]}
			all += demands[i].work
		}
		work := all * 1.2 * random.Float64()
		level, twin := fairLevel(slices.Clone(demands), work), sortedLevel(demands, work)
		each, sum := given(demands, level)
		want, _ := given(demands, twin)
		for i := range demands {
			if math.Abs(each[i]-want[i]) > 1e-6*(1+want[i]) {
				t.Fatalf("round %d: %v of %v has %v, by sorting %v", round, demands[i], demands, each[i], want[i])
			}
		}
		if math.Abs(sum-min(all, work)) > 1e-6*all {
			t.Fatalf("round %d: %v of %v was given, %v asked for", round, sum, work, all)
		}
	}
}

func BenchmarkFairLevel(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{10, firstWeighted} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			demands, scratch := make([]demand, n), make([]demand, n)
			for i := range demands {
				demands[i] = demand{math.Exp(8 * random.Float64()), 1}
			}
			for b.Loop() {
				copy(scratch, demands)
				fairLevel(scratch, 100*float64(n))
			}
		})
	}
}
