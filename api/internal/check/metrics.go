package check

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// durationBuckets are bounds in seconds.
var durationBuckets = []float64{25e-6, 50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3}

// maxAPIs is more than there are: check, batch, stream, envoy and auth.
const maxAPIs = 16

// metrics count the checks of all APIs.
type metrics struct {
	checks   [sources][2]prometheus.Counter // as VerdictCounts
	duration *prometheus.HistogramVec
	failed   *prometheus.CounterVec // by api and code
}

// sourceNames are what metrics and the decision log call sources.
var sourceNames = [sources]string{
	ByOwner: "owner", ByNoRule: "no_rule", ByFailOpen: "fail_open",
	ByUnlimited: "unlimited", ByLocal: "local", ByFailClosed: "fail_closed", ByOverload: "overloaded",
	ByLent: "lent", ByRelay: "relayed", ByProvisional: "provisional",
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	checks := f.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_checks_total",
		Help: "Checks of clients, by result (allowed, denied) and by source of the decision (owner, relayed, provisional, lent, local, no_rule, unlimited, fail_open, fail_closed, overloaded).",
	}, []string{"result", "source"})
	duration := f.NewHistogramVec(prometheus.HistogramOpts{
		Name:                            "weir_check_duration_seconds",
		Help:                            "Time in which this node answered a call, or a message of a stream, by API: check, batch, stream, envoy or auth. Exemplars have the ids of traces.",
		Buckets:                         durationBuckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, []string{"api"})
	failed := f.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_check_errors_total",
		Help: "Calls, or messages of a stream, that got an error in place of decisions, by API as in weir_check_duration_seconds and by code of gRPC. Those that were refused before anything of them was decided are in weir_refused_calls_total.",
	}, []string{"api", "code"})
	m := &metrics{duration: duration, failed: failed}
	for s, name := range sourceNames {
		m.checks[s][denied] = checks.WithLabelValues("denied", name)
		m.checks[s][allowed] = checks.WithLabelValues("allowed", name)
	}
	return m
}

// VerdictCounts are how many verdicts of a call were which.
type VerdictCounts [sources][2]uint64

// The second index of VerdictCounts.
const (
	denied = iota
	allowed
)

// Add counts a verdict.
func (c *VerdictCounts) Add(v Verdict) {
	if v.Allowed {
		c[v.Source][allowed]++
	} else {
		c[v.Source][denied]++
	}
}

// Duration returns what observes how long the calls of an API take, in seconds.
func (c *Checker) Duration(api string) prometheus.Observer {
	c.metrics.failed.WithLabelValues(api, codes.InvalidArgument.String()) // so that a rate exists before the first one
	return c.metrics.duration.WithLabelValues(api)
}

// Failed counts a call of an API that gets err in place of decisions, and returns err.
func (c *Checker) Failed(api string, err error) error {
	c.metrics.failed.WithLabelValues(api, status.Code(err).String()).Inc()
	return err
}

// CountVerdicts counts all verdicts of a call.
func (c *Checker) CountVerdicts(counts *VerdictCounts) {
	for source := range counts {
		for result, n := range counts[source] {
			if n > 0 {
				c.metrics.checks[source][result].Add(float64(n))
			}
		}
	}
}

// CountOverloaded counts checks that there was no time for.
func (c *Checker) CountOverloaded(checks int) {
	c.metrics.checks[ByOverload][denied].Add(float64(checks))
}
