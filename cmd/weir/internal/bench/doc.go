// Package bench makes load and measures what it costs.
//
// Load asks servers over gRPC, in a closed loop or an open one; Engine asks the counters
// of a node in this process, Expiry and Cardinality see to their memory; ServeBaseline is the least
// that a server of the same messages costs. Each reports what it has led to.
package bench

import "time"

// The most of what can be asked for. A load generator that is told a zero too many should
// say so instead of taking the machine down.
const (
	MaxDuration    = time.Hour
	MaxTimeout     = time.Minute
	MaxKeys        = 100_000_000
	MaxBatch       = 1000   // what a node takes in one call
	MaxCallers     = 10_000 // goroutines
	MaxStreams     = 100    // of so many messages each at most:
	MaxWindow      = 100
	MaxRate        = 10_000_000 // checks per second
	MaxConnections = 256        // to each target
)
