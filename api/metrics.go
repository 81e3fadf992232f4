package api

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weirlimit/weir/headers"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
)

// Config says how to build a Limiter. The first four fields are required.
type Config struct {
	// Rules returns the rules to apply now.
	Rules func() *rules.Set
	// Hasher makes the keys of counters. All nodes of a cluster need the same.
	Hasher ring.Hasher
	// Decider answers.
	Decider Decider
	// Metrics is where the limiter's metrics are registered.
	Metrics prometheus.Registerer
	// Style is how decisions are told in header fields.
	Style headers.Style
	// Auth says how requests that a proxy asks about become attributes.
	Auth AuthConfig
	// Envoy says how Envoy's API answers.
	Envoy Envoy
}

type metrics struct {
	checks [sources][2]prometheus.Counter // as verdictCounts

	check, batch, stream, envoy, auth prometheus.Observer
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	checks := f.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_checks_total",
		Help: "Requests that clients have asked about, by result (allowed, denied) and by who decided (owner, standby, provisional, lent, local, no_rule, unlimited, fail_open, fail_closed, overloaded).",
	}, []string{"result", "source"})
	duration := f.NewHistogramVec(prometheus.HistogramOpts{
		Name:                        "weir_check_duration_seconds",
		Help:                        "How long this node took to answer a call, or a message of a stream, by API: check, batch, stream, envoy or auth.",
		Buckets:                     []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3},
		NativeHistogramBucketFactor: 1.1,
	}, []string{"api"})
	m := &metrics{
		check:  duration.WithLabelValues("check"),
		batch:  duration.WithLabelValues("batch"),
		stream: duration.WithLabelValues("stream"),
		envoy:  duration.WithLabelValues("envoy"),
		auth:   duration.WithLabelValues("auth"),
	}
	for s, name := range [sources]string{
		byOwner: "owner", byNoRule: "no_rule", byFailOpen: "fail_open",
		byUnlimited: "unlimited", byLocal: "local", byFailClosed: "fail_closed", byOverload: "overloaded",
		byLent: "lent", byStandby: "standby", byCopy: "provisional",
	} {
		m.checks[s][denied] = checks.WithLabelValues("denied", name)
		m.checks[s][allowed] = checks.WithLabelValues("allowed", name)
	}
	return m
}

// verdictCounts are how many verdicts of a call were which.
type verdictCounts [sources][2]uint64

// The second index of verdictCounts.
const (
	denied = iota
	allowed
)

func (c *verdictCounts) add(v verdict) {
	if v.allowed {
		c[v.source][allowed]++
	} else {
		c[v.source][denied]++
	}
}

// count counts all verdicts of a call.
func (m *metrics) count(c *verdictCounts) {
	for source := range c {
		for result, n := range c[source] {
			if n > 0 {
				m.checks[source][result].Add(float64(n))
			}
		}
	}
}
