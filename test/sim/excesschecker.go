package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// replication is how long what an owner has granted may be unknown to its standby.
const replication = 100 * time.Millisecond

// hurried is how long that may be for a key that was granted a twentieth of its limit since its standby heard of it.
const hurried = 2 * time.Millisecond

// extra returns how many tokens beyond its limit a key may be granted within a stretch,
// as the promises have it for the faults that touch the stretch:
//
//   - joins, drains, restarts, a slow or broken network in which others reach both sides, and any fault of
//     etcd: none;
//   - for each death, what was granted in the last replication interval before it, or if that is less a
//     tenth of the limit, or a twentieth and what was granted in its last 2 ms: a check can be for more tokens than a tenth;
//   - for a node that goes without its standby having heard of it lately, because there is a cut between it and some
//     other: what was granted since the cut began, a limit at most;
//   - for two nodes that are gone within the time of a recovery, which may be owner and
//     standby: a limit; and one until others have taken over, while etcd is unreachable. If both are back before
//     others have taken over, each grants from what it has kept: a limit more, and of a bucket what drains there meanwhile;
//   - for a node that is gone while the nodes are divided, or just after, as owner and standby may be gone on one side then: a limit;
//   - for a cut between two nodes of which one is slow to a third: what is granted from copies, as what is relayed may be late;
//   - for connections between two nodes that break while there is no other to relay: what is granted from copies until they have found each other again, a limit
//     at most;
//   - of a bucket, what drains while copies decide: parts of what they have granted drain apart if the owner feeds the copy meanwhile (algorithms.Merge);
//   - for each division of the nodes, which a node that is too slow makes as well, and a majority that has lost etcd, and a cut between two nodes while there
//     is no other to relay, or while some other is gone: a limit for the other side, and of a bucket what drains there meanwhile;
//   - for a majority that was divided from etcd and the others, once it is back: a limit, as an owner among them may decide from an
//     old copy until those that have newer ones are members again.
func (p Plan) extra(r Rule, hits []Hit, s stretch) (tokens int64) {
	for _, f := range p.Faults {
		since, cut := p.unreplicated(f)
		switch {
		case !s.meets(f.At, p.gone(f)):
		case cut && p.vanishes(f):
			tokens += min(r.capacity(), grantedIn(hits, stretch{since, p.gone(f)}))
		case dies(f):
			late := max((r.capacity()+9)/10, (r.capacity()+19)/20+grantedIn(hits, stretch{f.At - hurried, f.At}))
			tokens += min(late, grantedIn(hits, stretch{f.At - replication, f.At}))
		}
	}
	for _, both := range append(p.losses(), p.dividedLosses()...) {
		if s.meets(both.from, both.over) {
			tokens += r.capacity()
		}
		if taken := p.recovered(both.to); both.apart && s.meets(both.to, taken) {
			tokens += r.capacity() + r.drains(s.within(both.to, taken))
		}
	}
	for _, slow := range p.slowlyRelayed() {
		if both := (stretch{max(s.from, slow.from), min(s.to, slow.to)}); both.from <= both.to {
			tokens += grantedIn(fromCopies(hits), both)
		}
	}
	tokens += r.drainedInParts(fromCopies(hits), s)
	for _, apart := range p.disconnected() {
		if s.meets(apart.from, apart.to) {
			tokens += min(r.capacity(), grantedIn(fromCopies(hits), apart))
		}
	}
	for _, apart := range append(p.divided(), p.bereaved()...) {
		if s.meets(apart.from, apart.to) {
			tokens += r.capacity() + r.drains(s.within(apart.from, apart.to))
		}
	}
	return tokens
}

// drains is how many tokens leave a bucket in a length of time, and make room for as many, on each side of a division; of
// windows none, since no stretch that is looked at is longer than one.
func (r Rule) drains(length time.Duration) int64 {
	if !r.counts().Drains() {
		return 0
	}
	return int64(float64(r.Limit) * length.Seconds() / r.Window.Seconds())
}

// drainedInParts is how many tokens leave a bucket from the first to the last of hits that meet a stretch, and no more than those have taken.
func (r Rule) drainedInParts(hits []Hit, s stretch) int64 {
	all := stretch{s.to, s.from}
	for _, h := range hits {
		if s.meets(h.From, h.To) {
			all = stretch{min(all.from, h.From), max(all.to, h.To)}
		}
	}
	return min(r.drains(max(all.to-all.from, 0)), grantedIn(hits, s))
}

// unreplicated reports whether there is a cut between a node, when a fault hits it, and another, which may be its standby; or there was one
// until so shortly before that they may not have found each other again. It returns since when.
func (p Plan) unreplicated(of Fault) (since time.Duration, cut bool) {
	since = of.At
	for _, f := range p.Faults {
		if f.Kind == OneWay && (f.Node == of.Node || f.Other == of.Node) && f.At <= of.At && of.At <= f.At+f.For+mended {
			since, cut = min(since, f.At-replication), true
		}
	}
	return since, cut
}

// disconnected are the stretches in which two nodes may not have found each other again after their connections broke, and there is no third one that relays.
func (p Plan) disconnected() (all []stretch) {
	for _, f := range p.Faults {
		if _, alone := p.unrelayed(f); f.Kind == Reset && alone {
			all = append(all, stretch{f.At, f.At + mended})
		}
	}
	return all
}

// counts is the algorithm of a rule, whose promise Excess holds: 0 if there is none of its name.
func (r Rule) counts() algorithms.Algorithm {
	a, _ := algorithms.Parse(r.Algorithm)
	return a
}

// longestWait is how long a check that is admitted may have to wait.
func (r Rule) longestWait() time.Duration {
	if !r.counts().Queues() {
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

// fromCopies returns those of hits that were decided from copies.
func fromCopies(hits []Hit) (some []Hit) {
	for _, h := range hits {
		if h.Source == weirv1.Source_SOURCE_PROVISIONAL {
			some = append(some, h)
		}
	}
	return some
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
	if a := r.counts(); a.Drains() || a.Long() {
		r.anywhere(hits, p.clocksApart(), look)
	} else {
		r.aligned(hits, start, p.clocksApart(), look)
	}
	return worst, found
}

// aligned looks at all windows of the clock. A hit whose window hangs on which of the clocks decides, which are that far apart at most, is
// in none for certain.
func (r Rule) aligned(hits []Hit, start time.Time, apart time.Duration, look func(granted, allowed int64, within stretch)) {
	granted := make(map[int64]int64)
	index := func(at time.Duration) int64 { return start.Add(at).UnixNano() / int64(r.Window) }
	for _, h := range slices.SortedFunc(slices.Values(hits), byEnd) {
		if i := index(h.From - apart); i == index(h.To+apart) {
			granted[i] += h.Tokens
			look(granted[i], r.Limit, stretch{time.Unix(0, i*int64(r.Window)).Sub(start), h.To})
		}
	}
}

// anywhere looks at every stretch that begins with one hit and ends with another: of a
// window's length for those that count what was in it, of any length for those that
// drain. Between two nodes whose clocks are apart more time passes by that.
func (r Rule) anywhere(hits []Hit, apart time.Duration, look func(granted, allowed int64, within stretch)) {
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
			length := h.To - first.From + apart
			allowed := r.Limit
			drained := int64(float64(r.Limit) * length.Seconds() / r.Window.Seconds())
			switch a := r.counts(); {
			case a.Queues(): // whose tokens go one after the other, but those of a check at once
				allowed = drained + maxTokens
			case a.Drains():
				allowed = r.capacity() + drained + 1 // for what is rounded
			case length >= r.Window:
				continue
			}
			granted += h.Tokens
			look(granted, allowed, stretch{first.From, h.To})
		}
	}
}

func byEnd(a, b Hit) int { return cmp.Compare(a.To, b.To) }

// dividedLosses are those of nodes that are gone while the nodes are divided: the owner or the standby of what they have may be on
// the other side, so that both are gone on their side. That side counts from nothing, in addition to the other one, until the two meet.
func (p Plan) dividedLosses() (all []loss) {
	for _, d := range p.Faults {
		for _, f := range p.Faults {
			over := d.At + d.For + mended
			if divides(d) && !d.isolates(f.Node) && p.vanishes(f) && d.At <= p.gone(f) && f.At <= over {
				all = append(all, loss{from: d.At, to: f.At, over: over})
			}
		}
	}
	return all
}
