package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// traceConfig describes traffic that can be made again from the same numbers.
type traceConfig struct {
	requests int
	sources  int
	length   time.Duration
	seed     uint64
}

// request is one request of a source, which is a number below traceConfig.sources.
type request struct {
	at     int64 // Unix nanoseconds
	source uint32
}

// traceStart is when every trace begins: not at the edge of a window.
var traceStart = time.Date(2026, 1, 1, 0, 0, 17, 0, time.UTC).UnixNano()

const (
	zipfExponent  = 1.1 // the n-th busiest source sends about n^-1.1 of what the first does
	sessionMean   = 12  // requests of a session
	shortestPause = 5 * time.Millisecond
	longestPause  = 5 * time.Second
)

// makeTrace returns requests in the order of time. Every source sends at least
// one; those that send more do so in sessions, which begin at any time. Within
// one the pauses are exponentially distributed, about a mean of its own, so that
// some are bursts and some are a trickle.
func makeTrace(c traceConfig) []request {
	r := rand.New(rand.NewPCG(c.seed, 0))
	zipf := rand.NewZipf(r, zipfExponent, 1, uint64(c.sources-1))
	trace := make([]request, 0, c.requests)
	for source := range min(c.sources, c.requests) {
		trace = append(trace, request{traceStart + r.Int64N(int64(c.length)), uint32(source)})
	}
	for len(trace) < c.requests {
		source := uint32(zipf.Uint64())
		at := traceStart + r.Int64N(int64(c.length))
		pause := float64(shortestPause) * math.Pow(float64(longestPause/shortestPause), r.Float64())
		for n := 1 + int(r.ExpFloat64()*(sessionMean-1)); n > 0 && len(trace) < c.requests; n-- {
			trace = append(trace, request{at, source})
			at += int64(pause * r.ExpFloat64())
		}
	}
	slices.SortFunc(trace, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.source, b.source))
	})
	return trace
}
