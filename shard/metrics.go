package shard

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	evicted, expired, shared, lent, granted, unkept, restarts prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Shard) metrics {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_counters",
		Help: "Counters that this node keeps.",
	}, func() float64 { return float64(s.Len()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_counter_bytes",
		Help: "Memory of the tables of the counters, those of long algorithms aside.",
	}, func() float64 { return float64(s.Bytes()) })
	return metrics{
		evicted: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_counters_evicted_total",
			Help: "Live counters that were dropped because the node keeps no more.",
		}),
		shared: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_counters_shared_total",
			Help: "Takes that were counted together with others of the same limit because the node has no memory for more counters.",
		}),
		expired: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_counters_expired_total",
			Help: "Counters that were dropped because nothing weighed on them any more.",
		}),
		lent: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_lent_tokens_total",
			Help: "Tokens that this node has lent to other nodes and to clients.",
		}),
		restarts: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_changes_restarted_total",
			Help: "How often so much has changed in a partition that a node that follows it is given all of it again.",
		}),
		granted: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_provisional_grants_total",
			Help: "Takes that this node has granted from its copy of a counter, standing by.",
		}),
		unkept: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_provisional_grants_unkept_total",
			Help: "Those of them that the owner will not be told of, because too many are waiting for it.",
		}),
	}
}
