package bench

import (
	"maps"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"google.golang.org/grpc/status"
)

// Counts is what became of checks.
type Counts struct {
	Checks   int64 `json:"checks"` // that were answered
	Allowed  int64 `json:"allowed"`
	Denied   int64 `json:"denied"`
	FailOpen int64 `json:"fail_open"` // of the allowed ones: no node could decide in time
	NoRule   int64 `json:"no_rule"`   // of the allowed ones: nothing limits them
	Errors   int64 `json:"errors"`    // checks without an answer
	// Failures counts the checks without an answer by the gRPC code of their call.
	Failures map[string]int64 `json:"failures,omitempty"`
}

func (c *Counts) add(other Counts) {
	c.Checks += other.Checks
	c.Allowed += other.Allowed
	c.Denied += other.Denied
	c.FailOpen += other.FailOpen
	c.NoRule += other.NoRule
	c.Errors += other.Errors
	for code, n := range other.Failures {
		c.fail(code, n)
	}
}

// note counts a call of so many checks, which led to answers or to err.
func (c *Counts) note(checks int, answers Answers, err error) {
	if err != nil {
		c.Errors += int64(checks)
		c.fail(status.Code(err).String(), int64(checks))
		return
	}
	c.Checks += int64(checks)
	c.Allowed += answers.Allowed
	c.Denied += answers.Denied
	c.FailOpen += answers.FailOpen
	c.NoRule += answers.NoRule
}

func (c *Counts) fail(code string, n int64) {
	if c.Failures == nil {
		c.Failures = make(map[string]int64)
	}
	c.Failures[code] += n
}

// tally collects what the calls of some callers led to. It is safe for concurrent use.
type tally struct {
	mu      sync.Mutex
	counts  Counts     // guarded by mu
	latency *histogram // guarded by mu
	delay   *histogram // guarded by mu; how long after its instant a call was sent
}

func newTally() *tally { return &tally{latency: newHistogram(), delay: newHistogram()} }

// add adds what calls led to, of which one was measured.
func (t *tally) add(delay, latency time.Duration, calls Counts) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.delay.record(delay)
	t.latency.record(latency)
	t.counts.add(calls)
}

// read returns the counts so far.
func (t *tally) read() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	counts := t.counts
	counts.Failures = maps.Clone(counts.Failures)
	return counts
}

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
