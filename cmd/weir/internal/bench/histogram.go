package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Percentiles of times, in microseconds.
type Percentiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// histogram counts times, to 0.1 %.
type histogram struct{ hdr *hdrhistogram.Histogram }

// newHistogram has room for the longest that a call can take: it was due at the start
// and got its time-out at the end.
func newHistogram() *histogram {
	return &histogram{hdrhistogram.New(int64(100*time.Nanosecond), int64(MaxDuration+2*MaxTimeout), 3)}
}

// record counts a time. One beyond the highest, or below 0, counts as that.
func (h *histogram) record(d time.Duration) {
	_ = h.hdr.RecordValue(min(max(0, int64(d)), h.hdr.HighestTrackableValue())) // which is in range
}

func (h *histogram) merge(other *histogram) { h.hdr.Merge(other.hdr) }

func (h *histogram) percentiles() Percentiles {
	at := func(percent float64) float64 { return micros(time.Duration(h.hdr.ValueAtQuantile(percent))) }
	return Percentiles{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: at(100)}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
