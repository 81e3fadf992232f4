package rules

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of a Source.
type metrics struct {
	loads   *prometheus.CounterVec
	loaded  prometheus.Gauge
	success prometheus.Gauge
}

// Outcomes of a load.
const (
	outcomeSuccess = "success"
	outcomeFailure = "failure"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		loads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_rules_load_total",
			Help: "Attempts to load changed rules, by outcome: success or failure.",
		}, []string{"outcome"}),
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_rules_loaded",
			Help: "Rules in force, including disabled ones.",
		}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_rules_last_load_success",
			Help: "1 if the newest rules are in force, 0 if they were refused and older ones are in force.",
		}),
	}
	for _, outcome := range []string{outcomeSuccess, outcomeFailure} {
		m.loads.WithLabelValues(outcome) // so that a rate exists before the first one
	}
	for _, c := range []prometheus.Collector{m.loads, m.loaded, m.success} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) loadedSet(s *Set) {
	m.loads.WithLabelValues(outcomeSuccess).Inc()
	m.loaded.Set(float64(s.Len()))
	m.success.Set(1)
}

func (m *metrics) refused() {
	m.loads.WithLabelValues(outcomeFailure).Inc()
	m.success.Set(0)
}
