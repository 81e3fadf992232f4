package etcd

import "github.com/prometheus/client_golang/prometheus"

// metrics of one registry.
type metrics struct {
	up         prometheus.Gauge
	alarm      prometheus.Gauge
	leasesLost prometheus.Counter
	failures   prometheus.Counter
	lists      *prometheus.CounterVec // by why

	registerer prometheus.Registerer
	collectors []prometheus.Collector // with registerer
}

// The reasons for a list.
const (
	listFirst     = "first"     // of Run
	listScheduled = "scheduled" // every relistEvery
	listCut       = "cut"       // the watch ended: connection, leader, silence
	listCompacted = "compacted" // the watch lagged behind a compaction
	listFailed    = "failed"    // the last list got no answer
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_etcd_up",
			Help: "1 if etcd answers, else 0.",
		}),
		alarm: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_etcd_alarm",
			Help: "1 if this node refuses what etcd has, because etcd was wiped or restored from an older state, else 0.",
		}),
		leasesLost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_etcd_leases_lost_total",
			Help: "Times that etcd has dropped the lease of this node.",
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_etcd_failures_total",
			Help: "Calls of this node that etcd did not answer, or answered for want of a leader.",
		}),
		lists: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_etcd_lists_total",
			Help: "Times that this node has read all keys of the cluster from etcd, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{listFirst, listScheduled, listCut, listCompacted, listFailed} {
		m.lists.WithLabelValues(reason)
	}
	if reg == nil {
		return m, nil
	}
	m.registerer = reg
	for _, c := range []prometheus.Collector{m.up, m.alarm, m.leasesLost, m.failures, m.lists} {
		if err := reg.Register(c); err != nil {
			m.unregister()
			return nil, err
		}
		m.collectors = append(m.collectors, c)
	}
	return m, nil
}

func (m *metrics) setAlarm(on bool) {
	if on {
		m.alarm.Set(1)
	} else {
		m.alarm.Set(0)
	}
}

func (m *metrics) unregister() {
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}
