package check

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Traffic is what was answered since the start.
type Traffic struct {
	// Allowed and Denied are checks. Undecided are others, which the failure policy of a rule answered, or for which no node had time.
	Allowed, Denied, Undecided uint64
	// Calls are the calls by time: Calls[i] took at most Bounds[i], and longer than Bounds[i-1]. There is one more number in Calls
	// than in Bounds, of those that took longer.
	Bounds []time.Duration
	Calls  []uint64
}

// undecided are the sources of verdicts that are no decision by a counter or a rule.
var undecided = [sources]bool{ByFailOpen: true, ByLocal: true, ByFailClosed: true, ByOverload: true}

// Traffic returns what was answered, of all APIs together. It takes some microseconds.
func (c *Checker) Traffic() Traffic {
	t := Traffic{Calls: make([]uint64, len(durationBuckets)+1)}
	for s := range c.metrics.checks {
		for result, counter := range c.metrics.checks[s] {
			var m dto.Metric
			if counter.Write(&m) != nil {
				continue // of our own kind it does not fail
			}
			n := uint64(m.GetCounter().GetValue())
			switch {
			case undecided[s]:
				t.Undecided += n
			case result == allowed:
				t.Allowed += n
			default:
				t.Denied += n
			}
		}
	}
	for _, bound := range durationBuckets {
		t.Bounds = append(t.Bounds, time.Duration(math.Round(bound*float64(time.Second))))
	}
	metrics := make(chan prometheus.Metric, maxAPIs)
	c.metrics.duration.Collect(metrics)
	close(metrics)
	for metric := range metrics {
		var m dto.Metric
		if metric.Write(&m) != nil {
			continue // likewise
		}
		before := uint64(0)
		for i, b := range m.GetHistogram().GetBucket() {
			if i < len(durationBuckets) {
				t.Calls[i] += b.GetCumulativeCount() - before
				before = b.GetCumulativeCount()
			}
		}
		t.Calls[len(durationBuckets)] += m.GetHistogram().GetSampleCount() - before
	}
	return t
}
