package cluster

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Bounds of how far a group is sent about, apart from the time that one request has.
const (
	maxHops  = 16               // times that it is asked again elsewhere
	maxLost  = 4                // times that the same member is asked again, if it knows of no other
	hopPause = time.Millisecond // before it goes where it may have been before
)

// Locator knows where the counters are that this node does not have.
type Locator interface {
	// OwnerOf returns the id of the member that is asked for partition p: the view's owner, or a predecessor for whose final state
	// this node waits as the owner. It is this node itself if it owns p, also if it may not decide. ok is false before the first view, and if this
	// node decides from its copy in the place of others.
	OwnerOf(p uint32) (id string, ok bool)
	// Reaching returns the ids of the members that have said lately that they reach the one of that
	// id.
	Reaching(id string) []string
	// IsGrantable reports whether this node may decide from its copy of partition p if the node that is to decide does not answer.
	IsGrantable(p uint32) bool
	// DecidesApart reports whether this node is the owner of p, waits for the final state of a former owner, and reaches none that it waits for: it
	// decides from its copy meanwhile.
	DecidesApart(p uint32) bool
	// ReturnGranted is told of a take that is given back, and that this node has granted as the standby in a grant
	// that was sent. It returns the id of the member that has the grant, and is to undo the take now. It returns
	// "" if that is seen to once a member has it, or cannot be known.
	ReturnGranted(take shard.Take) string
	// Returning returns a channel that is closed when this node may decide again, if it was suspended
	// until just now, or else nil.
	Returning() <-chan struct{}
	// WasStopped reports whether this node has gone on just now after a stop: that others were silent meanwhile says nothing
	// of them.
	WasStopped() bool
}

// newTable returns the table for v. A partition whose owner is another one than in old is
// asked for where it was, as long as that is a member: it decides until it has adopted v as well, and redirects then.
func (r *Router) newTable(v *View, old *table) *table {
	t := &table{full: &r.full, view: v, peers: make([]*peer, len(v.Members)), self: -1}
	for i, m := range v.Members {
		t.marks = append(t.marks, markOf(m.ID))
		if m.ID == r.self {
			t.self = i
		}
	}
	t.began = time.Now()
	t.routes = make([]atomic.Uint32, v.Ring.Partitions())
	t.vacant = make([]atomic.Int64, v.Ring.Partitions())
	var now []int // index in v of old's members, -1 if it is none any more
	if old != nil && len(old.routes) == len(t.routes) {
		for _, mark := range old.marks {
			now = append(now, slices.Index(t.marks, mark))
		}
	}
	for p := range t.routes {
		to := v.Ring.Owner(uint32(p))
		if now != nil {
			if there := now[old.routes[p].Load()]; there >= 0 {
				to = there
			}
		}
		t.routes[p].Store(uint32(to))
	}
	return t
}

// route returns the index of the member that is asked for k's counter.
func (t *table) route(k ring.Key) int { return int(t.routes[t.partition(k)].Load()) }

// partition returns the partition of k's counter.
func (t *table) partition(k ring.Key) uint32 { return k.Partition(uint32(len(t.routes))) }

// owner returns the index of the member that owns k's counter in the view.
func (t *table) owner(k ring.Key) int { return t.view.Ring.Owner(t.partition(k)) }

// redirect notes that the member from does not have k's counter, but the one of that
// mark; or else, for all that is known, the view's owner. An owner that names itself has
// nothing of it. redirect reports whether that is another member than from.
func (t *table) redirect(k ring.Key, from int, mark uint64) (elsewhere bool) {
	p := t.partition(k)
	to, owner := slices.Index(t.marks, mark), t.owner(k)
	if from == owner && mark == t.marks[from] {
		t.vacant[p].Store(int64(time.Since(t.began) + probeEvery))
	}
	if to < 0 || to == from {
		to = owner
	}
	t.routes[p].CompareAndSwap(uint32(from), uint32(to))
	return to != from
}

// isVacant reports whether the owner of k's counter has said just now that it has nothing of it,
// and another member may.
func (t *table) isVacant(k ring.Key) bool {
	until := t.vacant[t.partition(k)].Load()
	return until > 0 && int64(time.Since(t.began)) < until && t.standby(k) != noMember
}

// forsake has the owners asked for what the member from, who does not answer, was asked
// for instead of them. It reports whether that concerns a counter of g.
func (t *table) forsake(from int, g *shard.Group) (changed bool) {
	for i := range g.Takes {
		k := g.Takes[i].Key
		if t.route(k) == from && t.owner(k) != from {
			t.redirect(k, from, 0)
			changed = true
		}
	}
	return changed
}

// owns reports whether a counter of g is the member's by the view.
func (t *table) owns(member int, g *shard.Group) bool {
	return slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return t.owner(take.Key) == member })
}

// reaches reports whether all members answer that are asked for g.
func (t *table) reaches(g *shard.Group) bool {
	for i := range g.Takes {
		k := g.Takes[i].Key
		if to := t.route(k); !t.answers(to, k) || to == t.owner(k) && t.isVacant(k) {
			return false
		}
	}
	return true
}

// answers reports whether the member to answers requests about k.
func (t *table) answers(to int, k ring.Key) bool {
	return t.peers[to] == nil || t.conn(to, k).healthy.Load()
}

// loses reports whether the member from is to be asked for g again, although it has just named no other member that
// has a counter of g. The route alone does not tell: while a partition moves, the answers to others turn it back to
// from at any time.
func (t *table) loses(from int, g *shard.Group) bool {
	if !g.Lost {
		return false
	}
	for i := range g.Takes {
		if take := &g.Takes[i]; take.Source == shard.Redirected && t.route(take.Key) == from && !t.isVacant(take.Key) {
			return true
		}
	}
	return false
}

// movedFrom returns what the conns to p are to do about counters that p does not have.
func (r *Router) movedFrom(p *peer) redirectFunc {
	return func(k ring.Key, mark uint64) (elsewhere bool) {
		t := r.table.Load()
		from := slices.Index(t.peers, p)
		return from < 0 || t.redirect(k, from, mark)
	}
}

// redirectedHere has others asked for those counters of g that the local shard does not have.
func (r *Router) redirectedHere(g *shard.Group) {
	t := r.table.Load()
	for i := range g.Takes {
		take := &g.Takes[i]
		if take.Source == shard.Redirected && t.self >= 0 && !t.redirect(take.Key, t.self, r.ownerMark(take.Key)) {
			g.Lost = true
		}
	}
}

// ownerMark returns the mark of the member that has k's counter, as Locator do; 0 if it knows
// of none.
func (r *Router) ownerMark(k ring.Key) uint64 {
	if id := r.ownerID(k); id != "" {
		return markOf(id)
	}
	return 0
}

// isOwnerOf reports whether this node has k's counter, decide about it or not.
func (r *Router) isOwnerOf(k ring.Key) bool { return r.ownerID(k) == r.self }

// ownerID returns the id of the member that has k's counter, as far as this node knows; ""
// if it does not.
func (r *Router) ownerID(k ring.Key) string {
	t := r.table.Load()
	if t == nil || r.locator == nil {
		return ""
	}
	id, ok := r.locator.OwnerOf(t.partition(k))
	if !ok {
		return ""
	}
	return id
}

// undecided reports whether g, which was asked, is not decided, or its answer is deferred. What is
// undecided is so as a whole.
func undecided(g *shard.Group) bool {
	if len(g.Takes) == 0 {
		return false
	}
	s := g.Takes[0].Source
	return s == shard.Unanswered || s == shard.Redirected || s == shard.Deferred
}

func anyUndecided(groups []shard.Group) bool {
	for i := range groups {
		if undecided(&groups[i]) {
			return true
		}
	}
	return false
}

// redirected reports whether g is undecided because the member that was asked does not have a counter of it.
func redirected(g *shard.Group) bool {
	for i := range g.Takes {
		if g.Takes[i].Source == shard.Redirected {
			return true
		}
	}
	return false
}

// forget makes g one that was not asked.
func forget(g *shard.Group) {
	g.Allowed, g.Deferred, g.By, g.Waits, g.Lost, g.Moved = false, 0, 0, false, false, false
	setSource(g, shard.Unanswered)
}

// walk is how far the groups of one call have got.
type walk struct {
	due      time.Time     // of the requests
	wait     time.Duration // until no node remembers a denial of what they free; 0 is none
	rounds   int           // in which they have waited so far; <= maxRounds
	hops     int           // that they were asked again
	lost     int           // of those, to members that knew of no other
	deferred time.Time     // since when answers are deferred; zero if none was
	hop      trace.Span    // on which the first of them was; at first that of the only group, if it was asked alone; nil without one
}

// pursue asks for the groups of asked that are undecided wherever they are said to be, until
// there is no time or no other member to ask, and then their standbys. What it splits
// becomes part of top, which asked may be.
func (r *Router) pursue(ctx context.Context, top, asked *scatter, w walk) {
	for asked.anyUndecided() {
		again := newScatter(r.table.Load())
		pause := r.sortOut(top, asked, again, &w)
		if asked != top {
			asked.free()
		}
		asked = again
		if again.size() == 0 || !r.goOn(ctx, pause, &w) {
			again.each(func(_ *peer, g *shard.Group, p *part) {
				if g.Deferred > 0 {
					r.denialLeases.strictAcks.tell(g)
				} else {
					top.addOrphan(g, p, true)
				}
			})
			break
		}
		r.metrics.redirected.Add(float64(again.size()))
		w.wait = r.exchange(ctx, again, w.due)
	}
	r.spanOfWait(ctx, &w)
	if asked != top {
		asked.free()
	}
	if len(top.orphans) > 0 {
		r.askStandbys(ctx, top)
	}
}

// sortOut assigns what is undecided of asked to again, or makes it an orphan of top. It returns how long to
// wait before again is asked.
func (r *Router) sortOut(top, asked, again *scatter, w *walk) (pause time.Duration) {
	t, lost, deferred, before := again.table, false, false, w.rounds
	asked.each(func(from *peer, g *shard.Group, p *part) {
		member := slices.Index(t.peers, from)
		switch {
		case !undecided(g):
			return
		case isDeferred(g):
			if w.deferred.IsZero() && w.hop == nil {
				w.hop = asked.hopOf(g)
			}
			if w.waitsForStandby() && member >= 0 {
				deferred = true
				setSource(g, shard.Unanswered) // until the node that has decided answers once more
				again.assign(member, g, nil, p)
			} else {
				r.denialLeases.strictAcks.tell(g)
			}
			return
		case redirected(g) && t.loses(member, g):
			if w.lost == maxLost {
				top.addOrphan(g, p, true)
				return
			}
			lost = true
		case redirected(g):
		case w.wait > 0 && frees(g) && (from == nil || g.Waits):
			if before < maxRounds {
				w.rounds, g.Waits = before+1, false
				again.place(top, g, p, t.route)
			}
			return
		case asked.isLost(g):
			return
		case from == nil || member < 0 || !t.forsake(member, g):
			top.addOrphan(g, p, member >= 0 && !t.owns(member, g))
			return
		}
		if t.reaches(g) {
			again.place(top, g, p, t.route)
		} else {
			top.addOrphan(g, p, true)
		}
	})
	if lost {
		w.lost++
	}
	if lost || deferred || w.hops > 0 {
		pause = hopPause
	}
	if w.hops++; w.rounds > before {
		r.metrics.waits.Inc()
		return max(pause, w.wait)
	}
	w.wait = 0
	return pause
}

// goOn pauses, and reports whether the groups are to be asked again then.
func (r *Router) goOn(ctx context.Context, pause time.Duration, w *walk) bool {
	now := time.Now()
	if w.wait > 0 { // the node said that it answers them then
		w.due = r.due(ctx, now.Add(pause))
	}
	if w.hops > maxHops || !now.Add(pause).Before(w.due) {
		return false
	}
	r.pause(ctx, pause)
	return ctx.Err() == nil
}

// pause waits, or until ctx ends.
func (r *Router) pause(ctx context.Context, wait time.Duration) {
	if wait <= 0 {
		return
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-over.C:
	case <-ctx.Done():
	}
}
