package cluster

import "github.com/prometheus/client_golang/prometheus"

// viewCollector reads the state of the view and its peers when it is asked for.
type viewCollector struct{ router *Router }

var (
	breakerDesc = prometheus.NewDesc("weir_peer_breaker_open",
		"1 if this node does not ask the peer, because the peer does not answer.", []string{"peer"}, nil)
	viewDesc = prometheus.NewDesc("weir_view_number",
		"Number of the view by which this node routes checks.", nil, nil)
	membersDesc = prometheus.NewDesc("weir_members",
		"Members of the view by which this node routes checks.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c viewCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- breakerDesc
	ch <- viewDesc
	ch <- membersDesc
}

// Collect implements prometheus.Collector.
func (c viewCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	t := c.router.table.Load()
	if t == nil {
		gauge(viewDesc, 0)
		gauge(membersDesc, 0)
		return
	}
	gauge(viewDesc, float64(t.view.Number))
	gauge(membersDesc, float64(len(t.view.Members)))
	for _, p := range t.peers {
		if p != nil {
			gauge(breakerDesc, float64(boolByte(!p.reachable())), p.member.ID)
		}
	}
}
