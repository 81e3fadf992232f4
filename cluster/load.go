package cluster

import (
	"strings"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// Bounds of a Load, of which a member reports no more.
const (
	maxLoadBounds       = 32
	maxLoadProblems     = 8
	maxLoadProblemBytes = 400 // bytes
	maxLoadAge          = time.Minute
)

// Load is what a node has answered since it was started, and what it holds, for people who watch the cluster. It is immutable.
type Load struct {
	// At is when the node has read it, by the clock of the node that has the Load; the zero time if it has said nothing.
	At time.Time
	// Allowed and Denied are checks of clients. Undecided are others, which the failure policy of a rule answered, or for which no
	// node had time.
	Allowed, Denied, Undecided uint64
	// Calls are the answered ones by time: Calls[i] took at most Bounds[i], and longer than Bounds[i-1]. There is one more
	// number in Calls than in Bounds, of those that took longer.
	Bounds []time.Duration
	Calls  []uint64
	// Counters live on the node, in CounterBytes bytes of at most CounterLimit.
	Counters, CounterBytes, CounterLimit uint64
	// Memory is that of the process in bytes.
	Memory uint64
	// Problems say what is wrong, one sentence each.
	Problems []string
}

// wire returns the load as a heartbeat reports it now, nil if there is none.
func (l Load) wire(now time.Time) *peerv1.Load {
	if len(l.Calls) == 0 {
		return nil
	}
	w := &peerv1.Load{
		Allowed: l.Allowed, Denied: l.Denied, Undecided: l.Undecided, Calls: l.Calls,
		Counters: l.Counters, CounterBytes: l.CounterBytes, CounterLimit: l.CounterLimit, Memory: l.Memory,
		Age: uint64(max(0, now.Sub(l.At))),
	}
	for _, b := range l.Bounds {
		w.Bounds = append(w.Bounds, uint64(b))
	}
	for _, p := range l.Problems[:min(len(l.Problems), maxLoadProblems)] {
		w.Problems = append(w.Problems, clipped(p))
	}
	return w
}

// loadOf returns the load that a member has reported in answer to a heartbeat that was sent then. What is above its bounds is left out.
func loadOf(w *peerv1.Load, sent time.Time) Load {
	if w == nil {
		return Load{}
	}
	l := Load{
		At: sent.Add(-time.Duration(min(w.GetAge(), uint64(maxLoadAge)))), Allowed: w.GetAllowed(), Denied: w.GetDenied(), Undecided: w.GetUndecided(),
		Counters: w.GetCounters(), CounterBytes: w.GetCounterBytes(), CounterLimit: w.GetCounterLimit(), Memory: w.GetMemory(),
	}
	if n := len(w.GetBounds()); n <= maxLoadBounds && len(w.GetCalls()) == n+1 {
		l.Calls = w.GetCalls()
		for _, b := range w.GetBounds() {
			l.Bounds = append(l.Bounds, time.Duration(b))
		}
	}
	for _, p := range w.GetProblems()[:min(len(w.GetProblems()), maxLoadProblems)] {
		l.Problems = append(l.Problems, clipped(p))
	}
	return l
}

// clipped returns a sentence of at most maxLoadProblem bytes.
func clipped(text string) string {
	if len(text) > maxLoadProblemBytes {
		text = text[:maxLoadProblemBytes-3] + "..."
	}
	return strings.ToValidUTF8(text, "")
}
