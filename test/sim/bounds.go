package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// replication is how long what an owner has granted may be unknown to its standby.
const replication = 100 * time.Millisecond

// stretch is a length of time.
type stretch struct{ from, to time.Duration }

func (s stretch) contains(at time.Duration) bool { return s.from <= at && at <= s.to }

func (s stretch) meets(from, to time.Duration) bool { return s.from <= to && from <= s.to }

// extra returns how many tokens beyond its limit a key may be granted within a stretch,
// as the promises have it for the faults that touch the stretch:
//
//   - joins, drains, restarts, a slow or broken network in which others reach both sides,
//     and whatever happens to etcd: none;
//   - for each death, what was granted in the last replication interval before it, or a
//     tenth of the limit if that is less;
//   - for deaths of two nodes within the time of a recovery, which may be owner and
//     standby: a limit;
//   - for each division of the nodes, which a node that is too slow makes as well: a
//     limit for the other side.
func (p Plan) extra(r Rule, hits []Hit, s stretch) (tokens int64) {
	var died []Fault // so far
	for _, f := range p.Faults {
		switch f.Kind {
		case Crash, Flash:
			if s.contains(f.At) {
				tokens += min((r.capacity()+9)/10, grantedIn(hits, stretch{f.At - replication, f.At}))
			}
			if slices.ContainsFunc(died, func(before Fault) bool {
				return f.Node != before.Node && f.At <= p.recovered(before.At) && s.meets(before.At, f.At)
			}) {
				tokens += r.capacity()
			}
			died = append(died, f)
		case Split, Stall, Lag:
			if s.meets(f.At, f.At+f.For+healing) {
				tokens += r.capacity()
			}
		}
	}
	return tokens
}

// recovered is when others have taken over from a node that died: not while etcd is away.
func (p Plan) recovered(died time.Duration) time.Duration {
	at := died + recovery
	for _, f := range p.Faults {
		if slices.Contains(ofEtcd, f.Kind) && died <= f.At+f.For && f.At <= at {
			at = max(at, f.At+f.For+recovery)
		}
	}
	return at
}

// longestWait is how long a check that is admitted may have to wait.
func (r Rule) longestWait() time.Duration {
	if r.Algorithm != "leaky_bucket" {
		return 0
	}
	return time.Duration(r.capacity()) * r.Window / time.Duration(r.Limit)
}

// capacity is what can be granted at once.
func (r Rule) capacity() int64 { return max(r.Limit, r.Burst) }

// grantedIn returns how many tokens may have been granted within a stretch.
func grantedIn(hits []Hit, s stretch) (tokens int64) {
	for _, h := range hits {
		if s.meets(h.From, h.To) {
			tokens += h.Tokens
		}
	}
	return tokens
}

// Excess is a stretch in which a key was granted more than it may.
type Excess struct {
	Key                     Key
	Since                   time.Duration // when that shows first
	Within                  stretch
	Granted, Allowed, Extra int64
}

// String tells all of it.
func (e Excess) String() string {
	return fmt.Sprintf("%v: granted %d within %.3fs..%.3fs, %d is the limit, and %d may come on top",
		e.Key, e.Granted, e.Within.from.Seconds(), e.Within.to.Seconds(), e.Allowed, e.Extra)
}

// Excess returns by how much a key was granted the most too much, if it was. A hit counts
// to a stretch only if it lies in it for certain.
func (p Plan) Excess(k Key, hits []Hit, start time.Time) (worst Excess, found bool) {
	r := Rules[k.Rule]
	look := func(granted, allowed int64, within stretch) {
		if granted <= allowed || found && granted-allowed <= worst.Granted-worst.Allowed-worst.Extra {
			return
		}
		decided := within // what goes on then was decided up to so much earlier
		decided.from -= r.longestWait()
		extra := p.extra(r, hits, decided)
		if granted <= allowed+extra {
			return
		}
		since := within.to
		if found {
			since = min(since, worst.Since)
		}
		if !found || granted-allowed-extra > worst.Granted-worst.Allowed-worst.Extra {
			worst, found = Excess{k, since, within, granted, allowed, extra}, true
		}
	}
	switch r.Algorithm {
	case "fixed_window", "sliding_window":
		r.aligned(hits, start, look)
	default:
		r.anywhere(hits, look)
	}
	return worst, found
}

// aligned looks at all windows of the clock.
func (r Rule) aligned(hits []Hit, start time.Time, look func(granted, allowed int64, within stretch)) {
	granted := make(map[int64]int64)
	index := func(at time.Duration) int64 { return start.Add(at).UnixNano() / int64(r.Window) }
	for _, h := range slices.SortedFunc(slices.Values(hits), byEnd) {
		if i := index(h.From); i == index(h.To) {
			granted[i] += h.Tokens
			look(granted[i], r.Limit, stretch{time.Unix(0, i*int64(r.Window)).Sub(start), h.To})
		}
	}
}

// anywhere looks at every stretch that begins with one hit and ends with another: of a
// window's length for those that count what was in it, of any length for those that
// drain.
func (r Rule) anywhere(hits []Hit, look func(granted, allowed int64, within stretch)) {
	going := slices.Clone(hits) // as they go on
	for i := range going {
		going[i].From += going[i].Wait
		going[i].To += going[i].Wait
	}
	slices.SortFunc(going, byEnd)
	for _, first := range going {
		var granted int64
		for _, h := range going {
			if h.From < first.From {
				continue
			}
			length := h.To - first.From
			allowed := r.Limit
			drained := int64(float64(r.Limit) * length.Seconds() / r.Window.Seconds())
			switch r.Algorithm {
			case "token_bucket", "gcra":
				allowed = r.capacity() + drained + 1 // for what is rounded
			case "leaky_bucket": // whose tokens go one after the other, but those of a check at once
				allowed = drained + maxTokens
			default:
				if length >= r.Window {
					continue
				}
			}
			granted += h.Tokens
			look(granted, allowed, stretch{first.From, h.To})
		}
	}
}

func byEnd(a, b Hit) int { return cmp.Compare(a.To, b.To) }
