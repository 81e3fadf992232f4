package overload

import "math"

// demand is the work that a domain asks for, and its weight, which is above 0.
type demand struct{ work, weight float64 }

// most is what a domain may have at a level.
func (d demand) most(level float64) float64 { return min(d.work, d.weight*level) }

// fairLevel divides work among domains by the fairness of max and min: each has what it asks for, or by its weight an equal part of what
// the others leave. It returns the level at which the sum of demand.most is work; that is infinite if there is enough for all. It
// changes demands.
//
// Each pass satisfies at least one domain, and two to five passes satisfy all that can be.
func fairLevel(demands []demand, work float64) float64 {
	for len(demands) > 0 {
		var weights float64
		for _, d := range demands {
			weights += d.weight
		}
		level := max(0, work) / weights
		rest := demands[:0]
		for _, d := range demands {
			if d.work > d.weight*level {
				rest = append(rest, d)
				continue
			}
			work -= d.work
		}
		if len(rest) == len(demands) {
			return level
		}
		demands = rest
	}
	return math.Inf(1)
}
