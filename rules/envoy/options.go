// Package envoy holds the rules of envoyproxy/ratelimit: a tree of descriptors per domain, through which the
// entries of a request walk in their order.
//
// Files are read and requests are matched as that server does it (src/config/config_impl.go, July 2026).
package envoy

import "github.com/weirlimit/weir/algorithms"

// Options say how files are read. The zero value is as envoyproxy/ratelimit does by default.
type Options struct {
	// Algorithm is what limits count by, 0 for FixedWindow. It is one that takes any limit
	// and that delays nothing: not SlidingWindowLog, nor LeakyBucket.
	Algorithm algorithms.Algorithm
	// Merge permits several documents of one domain, whose descriptors then stand together.
	Merge bool
}

// Counts returns the Algorithm, or its default.
func (o Options) Counts() algorithms.Algorithm {
	if o.Algorithm == 0 {
		return algorithms.FixedWindow
	}
	return o.Algorithm
}

// Limit returns the limit of so many requests per window of so many nanoseconds. What is
// above MaxLimit is held against that.
func (o Options) Limit(requests uint32, window int64) algorithms.Limit {
	return algorithms.Limit{
		Algorithm: o.Counts(),
		Limit:     min(int64(requests), algorithms.MaxLimit),
		Window:    window,
	}
}
