package topkeys

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// At a rate that is far above what is recorded, counts are right within the stated error, at most perRule events a
// second are recorded, and denials are all there however many checks are allowed at the same time.
func TestSampledCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		s := newSource(r, "r")
		exact := make(map[uint64]uint64)
		z := rand.NewZipf(rand.New(rand.NewPCG(7, 8)), 1.3, 1, 100_000)
		const steps, perStep = 5000, 400 // 50 s at 40,000 checks per second
		for i := range steps {
			for range perStep {
				id := z.Uint64()
				exact[id]++
				s.event(r, id, Checks)
			}
			if i%100 == 0 { // one each second
				s.event(r, 1<<40, Denied)
				exact[1<<40]++
			}
			time.Sleep(10 * time.Millisecond)
		}
		l := r.List(Query{Window: Minute})
		squares := 0.0 // of deviations, in standard errors
		for i, k := range l.Keys[:20] {
			deviation := math.Abs(float64(exact[k.ID]) - float64(k.Least+k.Most)/2)
			beyond := max(0, deviation-float64(k.Most-k.Least)/2) / math.Sqrt(k.Variance)
			squares += beyond * beyond
			t.Logf("key %d in place %d: %d, counted %d to %d, standard error %.0f", k.ID, i, exact[k.ID], k.Least, k.Most, math.Sqrt(k.Variance))
		}
		if squares > 80 { // chi-squared with 20 degrees of freedom: one of a hundred million runs
			t.Errorf("the counts of 20 keys are off by %.1f, in squared standard errors", squares)
		}
		if top := l.Keys[0]; top.ID != 0 || math.Sqrt(top.Variance) > 0.03*float64(top.Least) {
			t.Errorf("the first key is %+v", top)
		}
		denied := r.List(Query{Order: Denied, Window: Minute})
		if len(denied.Keys) != 1 || denied.Keys[0].Least != exact[1<<40] || denied.Keys[0].Variance != 0 {
			t.Errorf("denied: %+v, want %d", denied.Keys, exact[1<<40])
		}
	})
}

// Many rules that are busy at once record no more than the node's budget, about.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecorder(nil)
		var names []Name
		for i := range 200 {
			names = append(names, Name{"d", fmt.Sprint(i)})
		}
		var sources []*countingSource
		for _, g := range r.Assign(names) {
			s := &countingSource{pace: g.NewPace()}
			for i := range s.next {
				s.next[i].Store(1)
			}
			sources = append(sources, s)
		}
		var spent uint32
		for second := range 20 {
			for range 100 {
				for i, s := range sources {
					for range 5 { // each 500 per second: 100,000 per second
						s.event(r, uint64(i), Checks) // keys of different rules have different numbers
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
			if second >= 10 {
				spent = max(spent, r.budget.spent.Load())
			}
		}
		if s := r.budget.shift.Load(); s == 0 || spent > 2*perNode {
			t.Errorf("shift %d, %d events in a second", s, spent)
		}
		l := r.List(Query{Domain: "d", Rule: "17"})
		if n := float64(l.Keys[0].Least); math.Abs(n-10_000) > 4*math.Sqrt(l.Keys[0].Variance) {
			t.Errorf("%.0f events with a standard error of %.0f, want 10000", n, math.Sqrt(l.Keys[0].Variance))
		}
	})
}
