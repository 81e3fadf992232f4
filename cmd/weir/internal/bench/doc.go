// Package bench makes load and measures what it costs.
//
// Load asks nodes over gRPC, in a closed loop or an open one; Engine asks the counters
// of a node in this process; ServeFloor is the least that a server of the same messages
// costs. What they report is in Report and EngineReport.
package bench

import "time"

// The most of what can be asked for. A load generator that is told a zero too many should
// say so instead of taking the machine down.
const (
	MaxDuration    = time.Hour
	MaxTimeout     = time.Minute
	MaxKeys        = 100_000_000
	MaxBatch       = 1000       // what a node takes in one call
	MaxCallers     = 10_000     // goroutines
	MaxRate        = 10_000_000 // checks per second
	MaxConnections = 256        // to each target
)
