package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	partitionsDesc = prometheus.NewDesc("weir_partitions",
		"Partitions of this node by state: active (it decides in them while its decision lease is valid), wanted (this node is to have them, and they have not arrived yet), leaving (it still has to hand them over).",
		[]string{"state"}, nil)
	decisionLeaseDesc = prometheus.NewDesc("weir_decision_lease_seconds",
		"Time for which this node may still decide if neither etcd nor a majority of the members answers from now on; +Inf for a single node.", nil, nil)
)

var lagDesc = prometheus.NewDesc("weir_standby_lag_seconds",
	"Age of the oldest changes that the standby was sent and has not acknowledged, 0 if it has all. Changes are sent at most 0.1 s after they were made.", []string{"peer"}, nil)

var clockDesc = prometheus.NewDesc("weir_clock_difference_seconds",
	"Least difference that this node's clock can have to the member's clock that is furthest from it; above 1 a joining node is refused, and health names a member.", nil, nil)

// ownershipCollector reads how far handover is when it is asked for.
type ownershipCollector struct{ owners *Owners }

// Describe implements prometheus.Collector.
func (c ownershipCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- partitionsDesc
	ch <- decisionLeaseDesc
	ch <- clockDesc
	ch <- lagDesc
}

// Collect implements prometheus.Collector.
func (c ownershipCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.owners.HandoverStatus()
	for state, n := range map[string]int{"active": s.Active, "wanted": s.Wanted, "leaving": s.Leaving} {
		ch <- prometheus.MustNewConstMetric(partitionsDesc, prometheus.GaugeValue, float64(n), state)
	}
	ch <- prometheus.MustNewConstMetric(decisionLeaseDesc, prometheus.GaugeValue, s.left(time.Now()))
	for id, lag := range c.owners.lags(time.Now()) {
		ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, lag.Seconds(), id)
	}
	furthest := time.Duration(0)
	for _, d := range c.owners.Clocks() {
		furthest = max(furthest, d.Ahead.Abs())
	}
	ch <- prometheus.MustNewConstMetric(clockDesc, prometheus.GaugeValue, furthest.Seconds())
}
