package shard

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Take is one question to one counter, and its answer.
type Take struct {
	// Key says which counter, Limit what it is held against.
	Key   ring.Key
	Limit algorithms.Limit
	// Cost is the number of tokens asked for. See algorithms.Step for 0 and less.
	Cost int64

	// Decision and Source are the answer. Decision means nothing while Source is
	// Unanswered.
	Decision algorithms.Decision
	Source   Source
}

// Group is a set of Takes that is counted whole or not at all.
type Group struct {
	Takes []Take
	// Peek asks what the answer would be and counts nothing.
	Peek bool

	// Allowed is the answer: every Take that was answered had room. If it is
	// false, no Take has consumed anything.
	Allowed bool
}

// Source says who decided a Take.
type Source uint8

// The sources. Their numbers travel between nodes: never renumber them.
const (
	// Unanswered: nobody decided in time.
	Unanswered Source = 0
	// Owner: the node that owns the counter.
	Owner Source = 1
)
