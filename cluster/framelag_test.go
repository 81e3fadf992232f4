package cluster

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestLag sends frames over clocks that start anywhere and drift apart, on a way of 100 to 600 µs, some of which wait.
func TestLag(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		var l lag
		began := time.Unix(0, 0)
		offset := stamp(rnd.Uint32())
		drift := time.Duration(rnd.IntN(201) - 100) // ppm
		at := began
		for i := range 50_000 {
			at = at.Add(time.Duration(rnd.IntN(250)) * time.Millisecond)
			elapsed := at.Sub(began)
			sent := offset + stamp((elapsed+elapsed/1_000_000*drift)/time.Microsecond)
			waited := time.Duration(0)
			if i > 0 && rnd.IntN(5) == 0 {
				waited = time.Duration(rnd.IntN(3000)) * time.Millisecond
			}
			got := l.of(sent, at.Add(100*time.Microsecond+time.Duration(rnd.IntN(500))*time.Microsecond+waited))
			if off := got - waited; off < -2*time.Millisecond || off > 2*time.Millisecond {
				t.Fatalf("seed %d: frame %d has waited %v, not %v", seed, i, got, waited)
			}
		}
	}
}
