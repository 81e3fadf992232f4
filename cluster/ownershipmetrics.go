package cluster

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type ownershipMetrics struct {
	handedOver, received, continued, displaced, merged prometheus.Counter
	deferred, unacknowledged                           prometheus.Counter
	waived, feedFailures                               prometheus.Counter
	feedDuration                                       prometheus.Histogram
}

func newOwnershipMetrics(r prometheus.Registerer, o *Owners) ownershipMetrics {
	r.MustRegister(ownershipCollector{o})
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return ownershipMetrics{
		handedOver: counter("weir_partitions_handed_over_total",
			"Partitions that this node handed over to another node."),
		received: counter("weir_partitions_received_total",
			"Partitions that another node handed over to this node."),
		continued: counter("weir_partitions_continued_total",
			"Partitions whose owner was lost, and that this node continued from its copy."),
		displaced: counter("weir_partitions_displaced_total",
			"Partitions in which this node decided, and that a view took away from it because it was believed dead."),
		merged: counter("weir_merged_grants_total",
			"Counters to which this node added provisional grants of other nodes."),
		waived: counter("weir_waived_views_total",
			"Views that this node adopted although fewer than half of the members before the last change had adopted that change within 30 s. Missing members may grant a limit more, if they are alive."),
		feedFailures: counter("weir_replication_failures_total",
			"Messages of changes that a standby did not acknowledge. They are sent again."),
		feedDuration: f.NewHistogram(prometheus.HistogramOpts{
			Name:                            "weir_replication_duration_seconds",
			Help:                            "Time until a standby had acknowledged a message of changes, or the message had failed.",
			Buckets:                         []float64{250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3},
			NativeHistogramBucketFactor:     1.1,
			NativeHistogramMaxBucketNumber:  160,
			NativeHistogramMinResetDuration: time.Hour,
		}),
		deferred: counter("weir_strict_waits_total",
			"Answers of rules with durability strict that waited for the standby's acknowledgement."),
		unacknowledged: counter("weir_strict_unacknowledged_total",
			"Answers of rules with durability strict that were sent with more than a tenth of the limit unacknowledged, because the standby is missing or took too long."),
	}
}

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
