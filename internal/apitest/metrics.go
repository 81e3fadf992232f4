package apitest

import "github.com/prometheus/client_golang/prometheus"

// Checks returns how many checks weir_checks_total counts of that result and source.
func Checks(t Reporter, from prometheus.Gatherer, result, source string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetName() == "weir_checks_total" && labels["result"] == result && labels["source"] == source {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("weir_checks_total has no result %q of the source %q", result, source)
	return 0
}
