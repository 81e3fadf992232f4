package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type custodyMetrics struct {
	sealed, installed, recovered, fenced, merged prometheus.Counter
	held, unkept                                 prometheus.Counter
}

func newCustodyMetrics(r prometheus.Registerer, k *Custody) custodyMetrics {
	r.MustRegister(custodyCollector{k})
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return custodyMetrics{
		sealed: counter("weir_partitions_sealed_total",
			"Partitions that this node has handed to another one."),
		installed: counter("weir_partitions_installed_total",
			"Partitions that another node has handed to this one."),
		recovered: counter("weir_partitions_recovered_total",
			"Partitions whose holder was lost, and that this node has made anew from the best copy."),
		fenced: counter("weir_partitions_fenced_total",
			"Partitions that this node has held, and that a view has given up for lost."),
		merged: counter("weir_merged_grants_total",
			"Counters to which this node has added what others have granted in its place."),
		held: counter("weir_strict_waits_total",
			"Answers of strict limits that this node has held until their standby had what was granted."),
		unkept: counter("weir_strict_unacknowledged_total",
			"Answers of strict limits that were told although more than a tenth of the limit was not acknowledged, because the standby is missing or took too long."),
	}
}

var (
	partitionsDesc = prometheus.NewDesc("weir_partitions",
		"Partitions by what this node has to do with them: held, wanted (the view gives them to this node, which does not hold them yet), leaving (held, but the view gives them to others).",
		[]string{"state"}, nil)
	authorityDesc = prometheus.NewDesc("weir_authority_seconds",
		"How long this node may go on to admit if neither etcd nor a majority of the members answers any more; +Inf for a node that is alone.", nil, nil)
)

// custodyCollector reads how far custody is when it is asked for.
type custodyCollector struct{ custody *Custody }

// Describe implements prometheus.Collector.
func (c custodyCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- partitionsDesc
	ch <- authorityDesc
}

// Collect implements prometheus.Collector.
func (c custodyCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.custody.Standing()
	for state, n := range map[string]int{"held": s.Held, "wanted": s.Wanted, "leaving": s.Leaving} {
		ch <- prometheus.MustNewConstMetric(partitionsDesc, prometheus.GaugeValue, float64(n), state)
	}
	ch <- prometheus.MustNewConstMetric(authorityDesc, prometheus.GaugeValue, s.left(time.Now()))
}
