package bench

import (
	"maps"
	"sync"
	"time"

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
