package shard

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weirlimit/weir/algorithms"
)

type metrics struct {
	evicted, expired, shared, lent, returned, used, granted, dropped, restarts prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *Shard) metrics {
	f := promauto.With(r)
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_counters",
		Help: "Counters in the memory of this node, copies included.",
	}, func() float64 { return float64(s.Len()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_counters_bytes",
		Help: "Bytes of the tables of counters, without the counters of " + strings.Join(algorithms.NamesOf(algorithms.Algorithm.Long), " and ") + ".",
	}, func() float64 { return float64(s.Bytes()) })
	return metrics{
		evicted: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_counters_evicted_total",
			Help: "Counters in use that were dropped because their memory was full.",
		}),
		shared: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_counters_shared_total",
			Help: "Checks that shared a counter with others of the same limit because the memory for counters was full.",
		}),
		expired: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_counters_expired_total",
			Help: "Counters that were dropped because their windows were over or their buckets were full again.",
		}),
		lent: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_lent_tokens_total",
			Help: "Tokens that this node lent to other nodes and to clients.",
		}),
		returned: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_returned_tokens_total",
			Help: "Tokens that this node lent and that came back unused.",
		}),
		used: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_used_tokens_total",
			Help: "Tokens that this node lent and that were used, or did not come back in time.",
		}),
		restarts: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_changes_restarted_total",
			Help: "Times that a partition changed so fast that its standby, or a learner, was sent all of it again.",
		}),
		granted: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_provisional_grants_total",
			Help: "Grants that this node made as the standby, from its copy of a counter.",
		}),
		dropped: f.NewCounter(prometheus.CounterOpts{
			Name: "weir_provisional_grants_dropped_total",
			Help: "Provisional grants that the owner will not learn of, because the buffer of unsent ones was full.",
		}),
	}
}
