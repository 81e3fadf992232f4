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

func newOwnershipMetrics(r prometheus.Registerer) ownershipMetrics {
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
