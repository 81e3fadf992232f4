package rules

import "github.com/weirlimit/weir/algorithms"

// Mode says what a rule does above its limits. The zero value is hard: nothing is allowed above the limit.
type Mode struct {
	Kind ModeKind
	// Percent is how much of a limit's capacity may be taken above it.
	Percent int64
	// Parent is the id of the rule, of the same domain, without whose enforced match
	// an elastic rule is hard.
	Parent string
}

// ModeKind names one way of going beyond a limit.
type ModeKind uint8

// The kinds of modes.
const (
	Hard ModeKind = iota
	Soft
	Elastic
)

// raise returns l with percent more capacity, and how many tokens those are. A
// window takes them in all, a bucket keeps its rate and gets deeper.
func raise(l algorithms.Limit, percent int64) (raised algorithms.Limit, above int64) {
	capacity := l.Capacity()
	above = capacity * percent / 100
	if l.Algorithm.Drains() {
		l.Burst = capacity + above
	} else {
		l.Limit += above
	}
	return l, above
}
