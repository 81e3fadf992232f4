package measure

import (
	"slices"
)

// Results are measured values by the name of what was measured and by unit, such as
// "ns/op": one for each time that it was measured.
type Results map[string]map[string][]float64

// add notes one more value.
func (r Results) add(name, unit string, value float64) {
	if r[name] == nil {
		r[name] = make(map[string][]float64)
	}
	r[name][unit] = append(r[name][unit], value)
}

// Median returns the middle one of the values, false if there is none.
func (r Results) Median(name, unit string) (float64, bool) { return median(r[name][unit]) }

// MedianRatio returns the middle one of the ratios of the values of two names, each of two
// that were measured in one round.
func (r Results) MedianRatio(name, other, unit string) (float64, bool) {
	values, others := r[name][unit], r[other][unit]
	if len(values) != len(others) {
		return 0, false
	}
	ratios := make([]float64, len(values))
	for i := range ratios {
		ratios[i] = values[i] / others[i]
	}
	return median(ratios)
}

func median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	return slices.Sorted(slices.Values(values))[len(values)/2], true
}

// Merge adds the values of other.
func (r Results) Merge(other Results) {
	for name, units := range other {
		for unit, values := range units {
			for _, v := range values {
				r.add(name, unit, v)
			}
		}
	}
}
