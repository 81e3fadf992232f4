package main

import (
	"unsafe"

	"github.com/weirlimit/weir/algorithms"
)

// outcome is what an algorithm made of a trace.
type outcome struct {
	limit    algorithms.Limit
	requests int
	denied   int
	// A decision is wrong if the definition, given all requests that the algorithm has allowed before,
	// would have decided otherwise: no more than the limit in the window that ends now.
	wronglyAllowed int
	wronglyDenied  int
	// The sum of how far the algorithm's count was off, relative to the exact one,
	// over the requests before which there was something to count.
	missed   float64
	counted  int
	worst    int64 // the most requests that went through within any window
	bytes    int64 // of all counters
	counters int64
}

// share returns a part of the requests in percent.
func (o *outcome) share(part int) float64 { return 100 * float64(part) / float64(o.requests) }

// compare notes what the algorithm takes to be used, and what is.
func (o *outcome) compare(used, exact int64) {
	if exact > 0 {
		o.missed += float64(max(used-exact, exact-used)) / float64(exact)
		o.counted++
	}
}

// difference is the mean error of the count, in percent of it.
func (o *outcome) difference() float64 { return 100 * o.missed / float64(o.counted) }

// counter is a counter of any algorithm.
type counter struct {
	state algorithms.State
	long  algorithms.Long
}

// step takes one token, and also says how many were used before.
func (c *counter) step(l *algorithms.Limit, now int64) (d algorithms.Decision, used int64) {
	var before algorithms.Decision
	if l.Algorithm.Long() {
		before = c.long.Step(l, now, 0, false)
		d = c.long.Step(l, now, 1, true)
	} else {
		_, before = algorithms.Step(l, c.state, now, 0)
		c.state, d = algorithms.Step(l, c.state, now, 1)
	}
	return d, l.Capacity() - before.Remaining
}

func (c *counter) bytes(a algorithms.Algorithm) int64 {
	if !a.Long() {
		return int64(unsafe.Sizeof(c.state))
	}
	return int64(unsafe.Sizeof(c.long)) + int64(c.long.Bytes())
}

// window holds the instants of the requests that went through within the last
// window, in order: the definition of a rate limit, at its plainest.
type window []int64

// at returns how many there were in (now - length, now].
func (w *window) at(now, length int64) int64 {
	gone := 0
	for gone < len(*w) && (*w)[gone] <= now-length {
		gone++
	}
	*w = (*w)[gone:]
	return int64(len(*w))
}

// add notes one more, after which there are as many as it returns.
func (w *window) add(now, length int64) int64 {
	*w = append(*w, now)
	return w.at(now, length)
}

// replay decides about every request of a trace, each source having a counter.
func replay(l algorithms.Limit, trace []request, sources int) outcome {
	o := outcome{limit: l, requests: len(trace)}
	counters := make([]counter, sources)
	admitted := make([]window, sources) // when they were allowed
	left := make([]window, sources)     // when they went, which is later if they had to wait
	for _, r := range trace {
		d, used := counters[r.source].step(&l, r.at)
		exact := admitted[r.source].at(r.at, l.Window)
		o.compare(used, exact)
		room := exact < l.Limit
		switch {
		case !d.Allowed:
			o.denied++
			if room {
				o.wronglyDenied++
			}
		case !room:
			o.wronglyAllowed++
		}
		if d.Allowed {
			admitted[r.source].add(r.at, l.Window)
			o.worst = max(o.worst, left[r.source].add(d.At+d.Delay, l.Window))
		}
	}
	for i := range counters {
		if len(admitted[i]) > 0 {
			o.counters++
			o.bytes += counters[i].bytes(l.Algorithm)
		}
	}
	return o
}

// observe replays a trace as Cloudflare did: the sliding-window counter denies
// nothing, but is asked before every request whether its source is at the
// threshold, which is compared with what is so.
func observe(threshold int64, length int64, trace []request, sources int) outcome {
	l := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: algorithms.MaxLimit, Window: length}
	o := outcome{limit: l, requests: len(trace)}
	o.limit.Limit = threshold
	counters := make([]counter, sources)
	sent := make([]window, sources)
	for _, r := range trace {
		_, used := counters[r.source].step(&l, r.at)
		exact := sent[r.source].at(r.at, length)
		o.compare(used, exact)
		switch over, seen := exact >= threshold, used >= threshold; {
		case over && !seen:
			o.wronglyAllowed++
		case seen && !over:
			o.wronglyDenied++
		}
		if used >= threshold {
			o.denied++
		}
		sent[r.source].add(r.at, length)
	}
	return o
}
