package ui

import (
	"sync"
	"time"
)

// How often the load of the cluster is sampled, and how many samples are kept.
const (
	sampleEvery = 2 * time.Second
	maxSamples  = 300 // ten minutes
	staleAfter  = 5 * time.Second
)

// Load is what one node has answered since it was started, and what it holds.
type Load struct {
	ID string
	// At is when the node has said so; the zero time if it has said nothing.
	At time.Time
	// Allowed and Denied are checks. Undecided are others, which the failure policy of a rule answered, or for which no node had
	// time.
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

// rates are what a node, or all, have answered per second.
type rates struct {
	allowed, denied, undecided float64
	p50, p99                   time.Duration // of calls; 0 if there was none
}

// point is one sample of the whole cluster, as the charts have it.
type point struct {
	at time.Time
	rates
}

// samples are the last ones. It is safe for concurrent use.
type samples struct {
	mu     sync.Mutex
	points []point          // guarded by mu; the oldest first
	last   map[string]Load  // guarded by mu; by node
	byNode map[string]rates // guarded by mu; between the last two loads of a node
}

// add adds a sample. A node that was started again begins at 0, and one that says nothing any more has no rates.
func (s *samples) add(now time.Time, loads []Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.last == nil
	last, byNode := make(map[string]Load), make(map[string]rates)
	sum := point{at: now.Truncate(time.Millisecond)} // as pages name it when they ask for later ones
	var calls []uint64
	var bounds []time.Duration
	for _, l := range loads {
		before, known := s.last[l.ID]
		last[l.ID] = l
		if !known || !l.At.After(before.At) {
			if known && now.Sub(l.At) < staleAfter {
				byNode[l.ID] = s.byNode[l.ID] // it has said nothing newer yet
			}
			continue
		}
		if l.Allowed < before.Allowed || l.Denied < before.Denied || len(l.Calls) != len(before.Calls) {
			before = Load{At: before.At, Calls: make([]uint64, len(l.Calls))}
		}
		seconds := l.At.Sub(before.At).Seconds()
		r := rates{
			allowed: since(l.Allowed, before.Allowed) / seconds, denied: since(l.Denied, before.Denied) / seconds,
			undecided: since(l.Undecided, before.Undecided) / seconds,
		}
		answered := make([]uint64, len(l.Calls))
		for i := range answered {
			answered[i] = uint64(since(l.Calls[i], before.Calls[i]))
		}
		r.p50, r.p99 = quantile(l.Bounds, answered, 0.5), quantile(l.Bounds, answered, 0.99)
		byNode[l.ID] = r
		if calls == nil {
			calls, bounds = make([]uint64, len(answered)), l.Bounds
		}
		if len(calls) == len(answered) { // nodes of another version may have other bounds
			for i, n := range answered {
				calls[i] += n
			}
		}
	}
	for _, r := range byNode {
		sum.allowed, sum.denied, sum.undecided = sum.allowed+r.allowed, sum.denied+r.denied, sum.undecided+r.undecided
	}
	sum.p50, sum.p99 = quantile(bounds, calls, 0.5), quantile(bounds, calls, 0.99)
	s.last, s.byNode = last, byNode
	if first {
		return
	}
	if s.points = append(s.points, sum); len(s.points) > maxSamples {
		s.points = append([]point(nil), s.points[len(s.points)-maxSamples:]...)
	}
}

// since returns how much a count has risen; one that has fallen began again.
func since(now, before uint64) float64 {
	if now < before {
		return float64(now)
	}
	return float64(now - before)
}

// quantile returns the time below which that share of calls was answered, 0 without calls: between the bounds of a bucket by
// proportion. Above all bounds it is the last one.
func quantile(bounds []time.Duration, calls []uint64, q float64) time.Duration {
	all := uint64(0)
	for _, n := range calls {
		all += n
	}
	if all == 0 || len(bounds) == 0 || len(calls) != len(bounds)+1 {
		return 0
	}
	rank, below := q*float64(all), 0.0
	for i, bound := range bounds {
		n := float64(calls[i])
		if below+n >= rank && n > 0 {
			from := time.Duration(0)
			if i > 0 {
				from = bounds[i-1]
			}
			return from + time.Duration(float64(bound-from)*(rank-below)/n)
		}
		below += n
	}
	return bounds[len(bounds)-1]
}

// after returns the points after an instant, and the rates and loads of nodes.
func (s *samples) after(t time.Time) (points []point, byNode map[string]rates, last map[string]Load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := len(s.points)
	for i > 0 && s.points[i-1].at.After(t) {
		i--
	}
	return s.points[i:len(s.points):len(s.points)], s.byNode, s.last
}
