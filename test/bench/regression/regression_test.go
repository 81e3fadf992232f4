package main

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/bench/measure"
)

// within returns results that are just within every limit.
func within() measure.Results {
	r := make(measure.Results)
	set := func(name, unit string, value float64) { // a baseline may be that of several limits
		if r[name] == nil {
			r[name] = make(map[string][]float64)
		}
		r[name][unit] = []float64{value}
	}
	for _, l := range limits {
		if l.baseline == "" {
			set(l.name, l.unit, l.most)
			continue
		}
		set(l.name, l.unit, 100*l.most)
		set(l.baseline, l.unit, 100)
	}
	return r
}

// TestCheck: each limit by itself fails the comparison, and so does what was not measured.
func TestCheck(t *testing.T) {
	var out strings.Builder
	if !check(&out, within()) || strings.Contains(out.String(), "TOO MUCH") {
		t.Errorf("within all limits:\n%s", out.String())
	}
	for _, l := range limits {
		for verdict, values := range map[string][]float64{"TOO MUCH": {1.01*within()[l.name][l.unit][0] + 0.01}, "NOT MEASURED": nil} {
			r := within()
			r[l.name][l.unit] = values
			out.Reset()
			if check(&out, r) || strings.Count(out.String(), verdict) != 1 {
				t.Errorf("%s of %s:\n%s", verdict, l.name, out.String())
			}
		}
		if l.baseline != "" {
			r := within()
			r[l.baseline][l.unit] = []float64{90}
			if check(&out, r) {
				t.Errorf("%s: its baseline does not matter", l.name)
			}
		}
	}
}
