package shard

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	evicted, expired, lent prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Shard) metrics {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_counters",
		Help: "Counters that this node keeps.",
	}, func() float64 { return float64(s.Len()) })
	return metrics{
		evicted: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_counters_evicted_total",
			Help: "Live counters that were dropped because the node keeps no more.",
		}),
		expired: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_counters_expired_total",
			Help: "Counters that were dropped because nothing weighed on them any more.",
		}),
		lent: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_lent_tokens_total",
			Help: "Tokens that this node has lent to other nodes and to clients.",
		}),
	}
}
