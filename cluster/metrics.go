package cluster

import (
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weirlimit/weir/shard"
)

// RouterConfig says how to build a Router. Every field but Holders is required.
type RouterConfig struct {
	// Self is this node's id.
	Self string
	// Local answers for what this node owns.
	Local Local
	// Holders knows where the counters are that Local does not have. Nil means that nobody does.
	Holders Holders
	// Promises are this node's; its Server has the same.
	Promises *Promises
	// Dial connects to the others.
	Dial Dialer
	// AttemptTimeout is the most that a question to a peer waits for its answer.
	AttemptTimeout time.Duration
	// Logger is told when a peer ceases to answer, and when it answers again.
	Logger *slog.Logger
	// Metrics is where the router's metrics are registered.
	Metrics prometheus.Registerer
}

// routerMetrics label by peer, of which there are as many as members.
type routerMetrics struct {
	forwarded   *prometheus.CounterVec
	frames      *prometheus.CounterVec
	lostReturns prometheus.Counter

	remembered, lentChecks, returned, waits prometheus.Counter
	redirected, toStandby, relayed          prometheus.Counter
}

func newRouterMetrics(r prometheus.Registerer, router *Router) *routerMetrics {
	r.MustRegister(viewCollector{router})
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &routerMetrics{
		remembered: counter("weir_remembered_denials_total",
			"Checks that this node has denied by itself, because their owner has promised that it would."),
		lentChecks: counter("weir_lent_checks_total",
			"Checks that this node has allowed by itself, from tokens that their owner has lent."),
		returned: counter("weir_returned_tokens_total",
			"Tokens that were lent to this node and not used, and that it has given back."),
		waits: counter("weir_promise_waits_total",
			"Times that resets and refunds through this node have waited for peers to forget a denial."),
		redirected: counter("weir_redirected_total",
			"Groups of limits that this node has asked for again, because whoever was asked first did not have their counters."),
		toStandby: counter("weir_standby_asked_total",
			"Groups of limits that this node has asked the standby for, because their owner did not answer."),
		relayed: counter("weir_relayed_total",
			"Groups of limits that this node, asked as the standby, has had decided by their owner."),
		forwarded: f.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_forwarded_total",
			Help: "Groups of limits that this node asked a peer for, by outcome: answered, late, breaker_open, overflow.",
		}, []string{"peer", "outcome"}),
		frames: f.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_forwarded_frames_total",
			Help: "Messages in which this node has asked a peer; weir_forwarded_total per message is how well it batches.",
		}, []string{"peer"}),
		lostReturns: counter("weir_lost_returns_total",
			"Tokens of denied requests, or that were lent, that could not be given back to a peer, in groups."),
	}
}

// viewCollector reads the state of the view and its peers when it is asked for.
type viewCollector struct{ router *Router }

var (
	breakerDesc = prometheus.NewDesc("weir_peer_breaker_open",
		"1 if this node does not ask the peer at the moment because it does not answer.", []string{"peer"}, nil)
	viewDesc = prometheus.NewDesc("weir_view_number",
		"Number of the cluster view that this node routes by.", nil, nil)
	membersDesc = prometheus.NewDesc("weir_members",
		"Members of the cluster view that this node routes by.", nil, nil)
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

// peerMetrics are the series of one peer.
type peerMetrics struct {
	answered, late, open, overflow, frames prometheus.Counter
}

func (m *routerMetrics) peer(p *peer) peerMetrics {
	outcome := func(name string) prometheus.Counter { return m.forwarded.WithLabelValues(p.member.ID, name) }
	return peerMetrics{outcome("answered"), outcome("late"), outcome("breaker_open"), outcome("overflow"),
		m.frames.WithLabelValues(p.member.ID)}
}

func (m *routerMetrics) forget(p *peer) {
	m.forwarded.DeletePartialMatch(prometheus.Labels{"peer": p.member.ID})
	m.frames.DeleteLabelValues(p.member.ID)
}

// refused counts groups that the lane did not take in, and marks their takes if that
// was for lack of time.
func (m *peerMetrics) refused(err error, groups []*shard.Group) {
	n := float64(len(groups))
	switch {
	case errors.Is(err, errOpen):
		m.open.Add(n)
	case errors.Is(err, errStalled):
		m.late.Add(n)
	default:
		m.overflow.Add(n)
		for _, g := range groups {
			overload(g)
		}
	}
}

func overload(g *shard.Group) {
	if g.Held > 0 { // it is decided
		release(g)
		return
	}
	for i := range g.Takes {
		g.Takes[i].Source = shard.Overloaded
	}
}

func (m *peerMetrics) countAnswers(groups []*shard.Group) {
	n := 0
	for _, g := range groups {
		switch g.Takes[0].Source {
		case shard.Owner, shard.Standby, shard.Provisional, shard.Held:
			n++
		}
	}
	if n > 0 {
		m.answered.Add(float64(n))
	}
}
