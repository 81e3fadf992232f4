package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// replication is how long what an owner has granted may be unknown to its standby.
const replication = 100 * time.Millisecond

// hurried is how long that may be for a key that was granted a twentieth of its limit since its standby heard of it.
const hurried = 2 * time.Millisecond

// mended is how long it may take two nodes to find each other again after a cut.
const mended = 3 * time.Second

// dialed is how long it may take two nodes to connect again whose connections were reset, and how long a check may
// have been under way then.
const dialed = 100 * time.Millisecond

// spared is for how long a relay does not ask a member that was late.
const spared = 250 * time.Millisecond

// bridged is how long it may take until another node grants in the place of two that are gone.
const bridged = 1500 * time.Millisecond

// unlocked is how long it may take until a node that was killed and started again at once gets its directory.
const unlocked = 1500 * time.Millisecond

// noticed is how long it may take nodes to notice that etcd is back: an attempt lasts a second, and the next begins a second later.
const noticed = 2 * time.Second

// stretch is a length of time.
type stretch struct{ from, to time.Duration }

func (s stretch) meets(from, to time.Duration) bool { return s.from <= to && from <= s.to }

// within returns how much of s lies between two instants.
func (s stretch) within(from, to time.Duration) time.Duration {
	return max(min(s.to, to)-max(s.from, from), 0)
}

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

// dies reports whether a fault is that a node dies.
func dies(f Fault) bool {
	return f.Kind == Crash || f.Kind == Flash || slices.Contains(addresses, f.Kind)
}

// loss is of two nodes of which the second one is gone before others have taken over from the first.
type loss struct {
	from, to, over time.Duration // the first fault, the second one, and by when one node decides what they had
	apart          bool          // both nodes may be back before others have taken over
	left           bool          // one of them was told to stop, and has said farewell
}

// losses are those of a plan. A node that stops while etcd is unreachable is gone as well: it leaves its
// partitions to its standbys, unknown to the other nodes.
func (p Plan) losses() (all []loss) {
	var before []Fault
	for _, f := range p.Faults {
		if !p.vanishes(f) {
			continue
		}
		taken := p.recovered(f.At)
		gone := func(first Fault) bool { return f.Node != first.Node && f.At <= p.recovered(first.At) }
		returned := func(first Fault) bool { return gone(first) && returnsBy(first, taken) }
		if i := slices.IndexFunc(before, gone); i >= 0 {
			first := before[i]
			over := max(p.gone(first), p.gone(f))
			if taken > f.At+recovery {
				over = taken // without etcd, nodes that begin from nothing decide apart until then
			}
			all = append(all, loss{first.At, f.At, over, returnsBy(f, taken) && slices.ContainsFunc(before, returned), stops(first) || stops(f)})
		}
		before = append(before, f)
	}
	return all
}

// returnsBy reports whether a node that a fault has end may be started again by an instant.
func returnsBy(f Fault, at time.Duration) bool {
	return f.Kind == Flash || f.Kind == Restart || (f.Kind == Crash || f.Kind == Foreign) && f.At+f.For <= at
}

// gone is when a node is gone by that a fault has end: what it is asked while it stops it decides. It takes longer to hand over if another one dies meanwhile, or a
// cut keeps the others from fetching. It notices late that it cannot because etcd has become unreachable.
func (p Plan) gone(f Fault) time.Duration {
	if !stops(f) {
		return f.At
	}
	at := f.At + startFor
	for _, e := range p.Faults {
		switch {
		case e.At > at:
		case slices.Contains(ofEtcd, e.Kind) && f.At <= e.At:
			at = max(at, e.At+startFor+noticed)
		case e.Kind == OneWay && f.At <= e.At+e.For+mended:
			at = max(at, e.At+e.For+mended+startFor)
		case dies(e) && f.At <= e.At+recovery:
			at = max(at, e.At+recovery+startFor)
		}
	}
	return at
}

// vanishes reports whether a fault is that a node goes, and no view says so for a while.
func (p Plan) vanishes(f Fault) bool { return dies(f) || stops(f) && p.withoutEtcd(f.At, p.gone(f)) }

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

// stops reports whether a fault is that a node is told to stop.
func stops(f Fault) bool { return f.Kind == Drain || f.Kind == Restart }

// withoutEtcd reports whether etcd is unreachable within a stretch, or has only just come back.
func (p Plan) withoutEtcd(from, to time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		return slices.Contains(ofEtcd, f.Kind) && f.At <= to && from <= f.At+f.For+noticed
	})
}

// divided are the stretches in which nodes are divided, and what they have granted apart is not added up yet.
func (p Plan) divided() (all []stretch) {
	for _, f := range p.Faults {
		over := f.At + f.For + healing
		switch {
		case divides(f):
			all = append(all, stretch{f.At, over})
			if f.Kind == Exile {
				all = append(all, stretch{f.At + f.For, over}) // not mended: see above
			}
		case f.Kind == OneWay:
			if since, alone := p.unrelayed(f); alone {
				all = append(all, stretch{since, over})
			}
		}
	}
	return all
}

// divides reports whether a fault is that some nodes reach no other one for a while, or reach it too late.
func divides(f Fault) bool { return slices.Contains([]Kind{Split, Stall, Lag, Exile}, f.Kind) }

// isolates reports whether a division has a node alone on one side.
func (f Fault) isolates(id string) bool { return f.Node == id || slices.Equal(f.Group, []string{id}) }

// bereaved are the stretches of cuts between two nodes in which another is gone, or one of the two was and is back, and others have not taken over from it. A new
// owner that has no copy and does not reach the standby, which has it, decides from nothing; and while etcd is unreachable, who hears all but two members
// may not be a majority.
func (p Plan) bereaved() (all []stretch) {
	for _, cut := range p.Faults {
		for _, f := range p.Faults {
			over := cut.At + cut.For
			other := f.Node != cut.Node && f.Node != cut.Other || returnsBy(f, over)
			from, to := max(f.At, cut.At), min(p.recovered(f.At), over)
			if cut.Kind == OneWay && other && p.vanishes(f) && from < to {
				all = append(all, stretch{from, to + healing})
			}
		}
	}
	return all
}

// slowlyRelayed are the stretches of cuts between two nodes in which one of them has a slow link, too,
// which may be that to the relay: one frame waits for another then.
func (p Plan) slowlyRelayed() (all []stretch) {
	for _, cut := range p.Faults {
		for _, f := range p.Faults {
			ends := f.Node == cut.Node || f.Node == cut.Other || f.Other == cut.Node || f.Other == cut.Other
			from, to := max(f.At, cut.At), min(f.At+f.For, cut.At+cut.For+mended)
			if cut.Kind == OneWay && f.Kind == Slow && ends && from < to {
				all = append(all, stretch{from, to + spared})
			}
		}
	}
	return all
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

// unrelayed reports whether there is a time in a cut between two nodes in which there is no third one that relays, and since when.
func (p Plan) unrelayed(cut Fault) (since time.Duration, alone bool) {
	instants := []time.Duration{cut.At}
	for _, f := range p.Faults {
		if cut.At < f.At && f.At < cut.At+cut.For {
			instants = append(instants, f.At)
		}
	}
	for _, at := range instants {
		if !slices.ContainsFunc(p.nodes(), func(id string) bool {
			return id != cut.Node && id != cut.Other && p.serves(id, at) && !p.apart(id, cut, at)
		}) {
			return at, true
		}
	}
	return 0, false
}

// apart reports whether, at some instant of a cut between two others, a node may not have found one of them again after another cut.
func (p Plan) apart(id string, cut Fault, at time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		ends := []string{f.Node, f.Other}
		return f.Kind == OneWay && slices.Contains(ends, id) && (slices.Contains(ends, cut.Node) || slices.Contains(ends, cut.Other)) &&
			f.At <= at && at <= f.At+f.For+mended
	})
}

// nodes returns the ids of all nodes there ever are.
func (p Plan) nodes() []string {
	ids := slices.Clone(p.Start)
	for _, f := range p.Faults {
		switch f.Kind {
		case Join:
			ids = append(ids, f.Node)
		case Reused:
			ids = append(ids, f.Other)
		}
	}
	return ids
}

// serves reports whether a node is a member at some instant for certain, and has no fault of its own.
func (p Plan) serves(id string, at time.Duration) bool {
	there := slices.Contains(p.Start, id)
	for _, f := range p.Faults {
		if f.At > at || f.Node != id && f.Other != id {
			continue
		}
		switch f.Kind {
		case Join, Restart, Crash, Flash, Foreign:
			there = p.back(f) <= at
		case Reused:
			there = f.Other == id && p.back(f) <= at
		case Drain:
			there = false
		}
	}
	return there
}

// back is when a node that a fault has started, or has started again, is a member.
func (p Plan) back(f Fault) time.Duration {
	at := f.At + f.For
	if f.Kind == Restart {
		at = p.gone(f)
	}
	for _, e := range p.Faults { // without which it cannot start
		if slices.Contains(ofEtcd, e.Kind) && e.At <= at+startFor && at <= e.At+e.For {
			at = e.At + e.For
		}
	}
	return at + startFor
}

// undecidable reports whether a check sent at some instant may reach no node that can decide it: nodes are
// divided, or two are gone, or one is, or is not reached, and the connections to another have just been
// reset, or one is and what is relayed past a cut may be late; or are while the check is under way.
func (p Plan) undecidable(at time.Duration) bool {
	if slices.ContainsFunc(p.divided(), func(s stretch) bool { return s.meets(at, at+client.DefaultTimeout) }) {
		return true
	}
	if p.withoutEtcd(at, at+client.DefaultTimeout) &&
		(p.isHalved(at) || slices.ContainsFunc(p.bereaved(), func(s stretch) bool { return s.meets(at, at+client.DefaultTimeout) })) {
		return true
	}
	if slices.ContainsFunc(p.losses(), func(l loss) bool {
		return l.to <= at+client.DefaultTimeout && at <= p.recovered(l.to) && (l.left || p.changing(at))
	}) {
		return true
	}
	gone := slices.ContainsFunc(p.Faults, func(f Fault) bool { return p.vanishes(f) && f.At <= at && at <= p.recovered(f.At) })
	if gone && slices.ContainsFunc(p.slowlyRelayed(), func(s stretch) bool { return s.meets(at, at+client.DefaultTimeout) }) {
		return true
	}
	reset := slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == Reset && f.At-dialed <= at && at <= f.At+dialed })
	return reset && (gone || slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == OneWay && f.At <= at && at <= f.At+f.For+mended }))
}

// isHalved reports whether half of the nodes may be gone when a check is sent at some instant: the others are no majority.
func (p Plan) isHalved(at time.Duration) bool {
	left, gone := len(p.Start), make(map[string]bool)
	for _, f := range p.Faults {
		switch {
		case f.Kind == Drain && f.At <= at:
			left--
		case p.vanishes(f) && f.At <= at+client.DefaultTimeout && at <= p.recovered(f.At):
			gone[f.Node] = true
		}
	}
	return 2*len(gone) >= left
}

// changing reports whether a node was gone, or was started, so shortly before a check that is sent at some instant, or while that is under way, that nodes may not have
// found out yet which one grants in the place of others.
func (p Plan) changing(at time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		goes, comes := dies(f) || stops(f), f.Kind != Drain && (dies(f) || stops(f) || f.Kind == Join)
		found := stretch{f.At, p.gone(f) + bridged}
		started := stretch{f.At + f.For, p.back(f) - startFor + bridged} // it may wait for etcd
		if f.Kind == Flash {
			started.to += unlocked
		}
		return goes && found.meets(at, at+client.DefaultTimeout) || comes && started.meets(at, at+client.DefaultTimeout)
	})
}

// unanswerable reports whether it may be that no node answers in time a check sent at some instant: no node
// can decide it, which the node asked finds out when half of the client's time is over, and for the other
// half it may ask a node that is stalled, or dies just then. The same holds if the stalled node is the
// standby of one that is gone.
func (p Plan) unanswerable(at time.Duration) bool {
	until := at + client.DefaultTimeout
	for i, f := range p.Faults {
		stalled := f.Kind == Stall && f.At <= until && at <= f.At+f.For
		if !stalled && (!dies(f) || f.At < at || until < f.At) {
			continue
		}
		others := p
		others.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
		gone := func(g Fault) bool {
			return p.vanishes(g) && g.Node != f.Node && g.At <= until && at <= p.recovered(g.At)
		}
		if others.undecidable(at) || stalled && slices.ContainsFunc(p.Faults, gone) {
			return true
		}
	}
	return false
}

// recovered is when others have taken over from a node that died: not while etcd is unreachable.
func (p Plan) recovered(died time.Duration) time.Duration {
	at := died + recovery
	for _, f := range p.Faults {
		if slices.Contains(ofEtcd, f.Kind) && died <= f.At+f.For && f.At <= at {
			at = max(at, f.At+f.For+recovery)
		}
	}
	return at
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

// clocksApart is how far two clocks of a plan are apart at most.
func (p Plan) clocksApart() time.Duration {
	if len(p.Clocks) == 0 {
		return 0
	}
	var least, most time.Duration
	for _, by := range p.Clocks {
		least, most = min(least, by), max(most, by)
	}
	return most - least
}

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

// waived reports whether two nodes may decide in one partition at some instant: a majority has been gone for so long that the others go on
// without it. It is the only exception.
func (p Plan) waived(at time.Duration) bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool {
		return f.Kind == Exile && f.For > waiving && f.At+waiving <= at && at <= f.At+f.For+healing
	})
}
