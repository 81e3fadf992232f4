package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/test/docs/docwriter"
)

var small = traceConfig{requests: 200_000, sources: 5_000, length: 10 * time.Minute, seed: 7}

func replayAll(t *testing.T, limit int64, trace []request) map[algorithms.Algorithm]outcome {
	outcomes := make(map[algorithms.Algorithm]outcome)
	for _, name := range algorithms.Names() {
		a, _ := algorithms.Parse(name)
		l := algorithms.Limit{Algorithm: a, Limit: limit, Window: minute}
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
		outcomes[a] = replay(l, trace, small.sources)
	}
	return outcomes
}

// What the algorithms promise, on a trace that keeps them busy.
func TestGuarantees(t *testing.T) {
	const limit = 60
	outcomes := replayAll(t, limit, makeTrace(small))
	for a, o := range outcomes {
		if o.denied < o.requests/5 || o.denied > o.requests*4/5 || o.counters != int64(small.sources) {
			t.Errorf("%v: %d of %d denied, %d counters: this trace shows nothing", a, o.denied, o.requests, o.counters)
		}
		t.Logf("%-22v denied %d, wrongly allowed %d, wrongly denied %d, difference %.2f %%, at most %d",
			a, o.denied, o.wronglyAllowed, o.wronglyDenied, o.difference(), o.worst)
	}
	log, buckets, counter := outcomes[algorithms.SlidingWindowLog], outcomes[algorithms.SlidingWindowBuckets], outcomes[algorithms.SlidingWindow]
	fixed, bucket, leaky := outcomes[algorithms.FixedWindow], outcomes[algorithms.TokenBucket], outcomes[algorithms.LeakyBucket]
	for _, tc := range []struct {
		promise string
		holds   bool
	}{
		{"the log is never wrong", log.wronglyAllowed == 0 && log.wronglyDenied == 0 && log.missed == 0},
		{"the log fills the limit, and no more", log.worst == limit},
		{"buckets never wrongly allow", buckets.wronglyAllowed == 0 && buckets.worst <= limit},
		{"buckets wrongly deny for a sub-window", buckets.wronglyDenied > 0},
		{"fixed windows never wrongly deny", fixed.wronglyDenied == 0 && fixed.wronglyAllowed > 0},
		{"fixed windows allow twice the limit at most", fixed.worst > limit*3/2 && fixed.worst <= 2*limit},
		{"a bucket never wrongly denies", bucket.wronglyDenied == 0 && bucket.wronglyAllowed > 0},
		{"a bucket allows less than twice the limit", bucket.worst > limit*3/2 && bucket.worst < 2*limit},
		{"the counter allows less than twice the limit", counter.worst > limit && counter.worst < 2*limit},
		{"the counter wrongly allows less than fixed windows do", counter.wronglyAllowed < fixed.wronglyAllowed},
		{"gcra decides as token_bucket", sameDecisions(outcomes[algorithms.GCRA], bucket)},
		{"leaky_bucket decides as token_bucket", sameDecisions(leaky, bucket)},
		{"a leaky bucket lets go no more than the limit", leaky.worst <= limit},
		{"buckets count better than the counter, and it better than fixed windows",
			buckets.difference() < counter.difference() && counter.difference() < fixed.difference()},
		{"only the long ones need more than 16 bytes", fixed.bytes == 16*fixed.counters && log.bytes > 64*log.counters && buckets.bytes > 64*buckets.counters},
	} {
		if !tc.holds {
			t.Errorf("not so: %s", tc.promise)
		}
	}
}

func sameDecisions(a, b outcome) bool {
	return a.denied == b.denied && a.wronglyAllowed == b.wronglyAllowed && a.wronglyDenied == b.wronglyDenied
}

// A counter that observes is wrong only about sources near the threshold.
func TestObserving(t *testing.T) {
	trace := makeTrace(small)
	often, seldom := observe(60, minute, trace, small.sources), observe(2000, minute, trace, small.sources)
	if wrong := often.wronglyAllowed + often.wronglyDenied; wrong == 0 || wrong > often.requests/20 {
		t.Errorf("%d of %d wrong", wrong, often.requests)
	}
	if wrong := seldom.wronglyAllowed + seldom.wronglyDenied; 10*wrong > often.wronglyAllowed+often.wronglyDenied {
		t.Errorf("%d wrong where few are near the threshold", wrong)
	}
	if d := often.difference(); d <= 0 || d > 10 || d != seldom.difference() {
		t.Errorf("differences of %v and %v %%", d, seldom.difference())
	}
}

func TestTraceCanBeMadeAgain(t *testing.T) {
	trace := makeTrace(small)
	if !slices.Equal(trace, makeTrace(small)) {
		t.Error("the same seed made another trace")
	}
	other := small
	other.seed++
	if slices.Equal(trace, makeTrace(other)) {
		t.Error("another seed made the same trace")
	}
	sent := make([]int, small.sources)
	for i, r := range trace {
		sent[r.source]++
		if i > 0 && r.at < trace[i-1].at {
			t.Fatalf("request %d comes before the one before it", i)
		}
	}
	if len(trace) != small.requests || slices.Min(sent) == 0 || sent[0] < 20*sent[100] {
		t.Errorf("%d requests, %d of the busiest source, %d of the 101st, %d of the least", len(trace), sent[0], sent[100], slices.Min(sent))
	}
}

// What the repository shows is what the command would write. The tables take
// too long to be made again here.
func TestDocsAreCurrent(t *testing.T) {
	page, err := os.ReadFile("../../docs/algorithms.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range algorithms.All() {
		if !slices.ContainsFunc(plotted, func(l algorithms.Limit) bool { return l.Algorithm == a }) {
			t.Errorf("%v: missing in plotted, in test/accuracy/plot.go", a)
		}
	}
	for _, l := range plotted {
		if err := l.Validate(); err != nil {
			t.Error(err)
		}
		name := l.Algorithm.String()
		file, err := os.ReadFile("../../docs/algorithms/" + name + ".svg")
		if err != nil {
			t.Fatalf("%v: go run ./test/accuracy", err)
		}
		if !bytes.Equal(file, plot(l)) {
			t.Errorf("%s.svg is out of date: go run ./test/accuracy", name)
		}
		if n := strings.Count(string(page), "\n| `"+name+"` | "); n < len(publishedLimits) {
			t.Errorf("algorithms.md has %d rows of %s", n, name)
		}
		if !strings.Contains(string(page), "(algorithms/"+name+".svg)") {
			t.Errorf("algorithms.md does not show the plot of %s", name)
		}
	}
	if again, err := docwriter.Replace(page, command, nil); err != nil || len(again) >= len(page) {
		t.Errorf("algorithms.md has no tables: %v", err)
	}
}
