package cluster

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weirlimit/weir/shard"
)

// routerMetrics label by peer, of which there are as many as members.
type routerMetrics struct {
	forwarded   *prometheus.CounterVec
	frames      *prometheus.CounterVec
	lostReturns prometheus.Counter

	remembered, lentChecks, waits  prometheus.Counter
	redirected, toStandby, relayed prometheus.Counter
	dropped, undone, uncertain     prometheus.Counter
	contended                      prometheus.Counter
}

func newRouterMetrics(r prometheus.Registerer) *routerMetrics {
	f := promauto.With(r)
	counter := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &routerMetrics{
		remembered: counter("weir_remembered_denials_total",
			"Checks that this node denied by itself, from denial leases of their owners."),
		lentChecks: counter("weir_lent_checks_total",
			"Checks that this node allowed by itself, from tokens that their owners lent."),
		waits: counter("weir_denial_lease_waits_total",
			"Times that a reset or a return of tokens waited until denial leases had ended."),
		redirected: counter("weir_redirected_total",
			"Checks that this node asked of another node again, because the node asked first did not have the counters."),
		toStandby: counter("weir_standby_checks_total",
			"Checks that this node asked of a standby, because the owner did not answer."),
		relayed: counter("weir_relayed_total",
			"Checks that this node, asked as the standby, had decided by their owner."),
		dropped: counter("weir_late_dropped_total",
			"Checks of peers that this node did not count, because the peer had given up before they were read."),
		undone: counter("weir_late_undone_total",
			"Checks that a peer counted after this node had given up, and that this node gave back."),
		uncertain: counter("weir_uncertain_total",
			"Checks whose answer was lost with the connection to a peer, which may have counted them although they were decided otherwise."),
		contended: counter("weir_contended_total",
			"Times that this node asked for a check again, because tokens that other checks might still give back denied it."),
		forwarded: f.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_forwarded_total",
			Help: "Checks that this node forwarded to a peer, by outcome: answered, late, breaker_open, overflow (too many were waiting). A check whose limits are on several nodes counts for each.",
		}, []string{"peer", "outcome"}),
		frames: f.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_forwarded_frames_total",
			Help: "Messages in which this node forwarded checks to a peer; weir_forwarded_total divided by it is the number of checks per message.",
		}, []string{"peer"}),
		lostReturns: counter("weir_lost_returns_total",
			"Times that tokens of denied checks, or lent tokens, could not be given back to a peer."),
	}
}

// peerMetrics are the series of one peer.
type peerMetrics struct {
	answered, late, open, overflow, frames prometheus.Counter
}

func (m *routerMetrics) peer(id string) peerMetrics {
	outcome := func(name string) prometheus.Counter { return m.forwarded.WithLabelValues(id, name) }
	return peerMetrics{outcome("answered"), outcome("late"), outcome("breaker_open"), outcome("overflow"),
		m.frames.WithLabelValues(id)}
}

func (m *routerMetrics) forget(id string) {
	m.forwarded.DeletePartialMatch(prometheus.Labels{"peer": id})
	m.frames.DeleteLabelValues(id)
}

// refused counts groups that the conn did not take in, and marks their takes if that
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

func (m *peerMetrics) countAnswers(groups []*shard.Group) {
	n := 0
	for _, g := range groups {
		switch g.Takes[0].Source {
		case shard.Owner, shard.Relayed, shard.Provisional, shard.Deferred:
			n++
		case shard.Undecided, shard.Local, shard.Overloaded, shard.Lent, shard.Redirected:
		}
	}
	if n > 0 {
		m.answered.Add(float64(n))
	}
}
