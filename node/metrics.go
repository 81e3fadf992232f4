package node

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// nodeCollector reads what a node knows of itself when it is asked for.
type nodeCollector struct{ node *node }

var (
	readyDesc = prometheus.NewDesc("weir_ready",
		"1 if this node answers checks as a member and is not about to leave, as GET /readyz says, else 0.", nil, nil)
	problemsDesc = prometheus.NewDesc("weir_health_problems",
		"Problems that GET /v1/health names at the moment.", nil, nil)
	rulesInfoDesc = prometheus.NewDesc("weir_rules_info",
		"1, labelled with the hash of the rules in force, which is the same on nodes with the same rules.", []string{"hash"}, nil)
	buildInfoDesc = prometheus.NewDesc("weir_build_info",
		"1, labelled with the version of this node and of the Go that built it.", []string{"version", "goversion"}, nil)
	countersLimitDesc = prometheus.NewDesc("weir_counters_limit_bytes",
		"The most that weir_counters_bytes may become, as --counter-memory says.", nil, nil)
)

// Describe implements prometheus.Collector.
func (nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{readyDesc, problemsDesc, rulesInfoDesc, buildInfoDesc, countersLimitDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c nodeCollector) Collect(ch chan<- prometheus.Metric) {
	ready := 0.0
	if c.node.Ready() {
		ready = 1
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(readyDesc, ready)
	gauge(problemsDesc, float64(len(c.node.Problems())))
	gauge(rulesInfoDesc, 1, c.node.Rules().Hash())
	gauge(buildInfoDesc, 1, Version(), runtime.Version())
	gauge(countersLimitDesc, float64(c.node.opts.CounterMemory))
}
