package cluster

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/shard"
)

// Bounds of how far a group is sent about, apart from the time that one request has.
const (
	maxHops  = 16               // times that it is asked again elsewhere
	maxLost  = 4                // times that the same member is asked again, if it knows of no other
	hopPause = time.Millisecond // before it goes where it may have been before
)

// walk is how far the groups of one call have got.
type walk struct {
	top      *scatter      // has all groups, and the splits and orphans among them
	due      time.Time     // of the requests
	wait     time.Duration // until no node remembers a denial of what they free; 0 is none
	rounds   int           // in which they have waited so far; <= maxRounds
	hops     int           // that they were asked again
	lost     int           // of those, to members that knew of no other
	deferred time.Time     // since when answers are deferred; zero if none was
	hop      trace.Span    // on which the first of them was; at first that of the only group, if it was asked alone; nil without one
}

// pursue asks for the groups of top that are undecided wherever they are said to be, until
// there is no time or no other member to ask, and then their standbys. What it splits
// becomes part of top.
func (w *walk) pursue(ctx context.Context) {
	top, r := w.top, w.top.router
	asked := top
	for asked.anyUndecided() {
		again := newScatter(r, r.table.Load())
		pause := w.sortOut(asked, again)
		if asked != top {
			asked.free()
		}
		asked = again
		if again.size() == 0 || !w.goOn(ctx, pause) {
			again.each(func(_ *peer, g *shard.Group, p *part) {
				if g.Deferred > 0 {
					r.own.denialLeases.strictAcks.tell(g)
				} else {
					top.addOrphan(g, p, true)
				}
			})
			break
		}
		r.metrics.redirected.Add(float64(again.size()))
		w.wait = again.exchange(ctx, w.due)
	}
	w.spanOfWait(ctx)
	if asked != top {
		asked.free()
	}
	if len(top.orphans) > 0 {
		top.askStandbys(ctx)
	}
}

// sortOut assigns what is undecided of asked to again, or makes it an orphan of top. It returns how long to
// wait before again is asked.
func (w *walk) sortOut(asked, again *scatter) (pause time.Duration) {
	lost, deferred, before := false, false, w.rounds
	asked.each(func(from *peer, g *shard.Group, p *part) {
		switch {
		case !undecided(g):
		case isDeferred(g):
			deferred = w.sortDeferred(asked, again, from, g, p) || deferred
		case !redirected(g) && w.wait > 0 && frees(g) && (from == nil || g.Waits):
			if before < maxRounds {
				w.rounds, g.Waits = before+1, false
				again.place(w.top, g, p, again.table.route)
			}
		case !asked.isLost(g):
			lost = w.sortOther(again, from, g, p) || lost
		}
	})
	if lost {
		w.lost++
	}
	if lost || deferred || w.hops > 0 {
		pause = hopPause
	}
	if w.hops++; w.rounds > before {
		w.top.router.metrics.waits.Inc()
		return max(pause, w.wait)
	}
	w.wait = 0
	return pause
}

// sortDeferred assigns g, whose answer asked has and is deferred, to again, as long as that is to wait. It reports whether it has.
func (w *walk) sortDeferred(asked, again *scatter, from *peer, g *shard.Group, p *part) (waits bool) {
	if w.deferred.IsZero() && w.hop == nil {
		w.hop = asked.hopOf(g)
	}
	member := slices.Index(again.table.peers, from)
	if !w.waitsForStandby() || member < 0 {
		w.top.router.own.denialLeases.strictAcks.tell(g)
		return false
	}
	setSource(g, shard.Undecided) // until the node that has decided answers once more
	again.assign(member, g, nil, p)
	return true
}

// sortOther assigns g, which the peer from does not have or has not answered, to again if there is another member to ask, or
// else makes it an orphan. It reports whether from knew of no other.
func (w *walk) sortOther(again *scatter, from *peer, g *shard.Group, p *part) (lost bool) {
	t, moved := again.table, redirected(g)
	member := slices.Index(t.peers, from)
	lost = moved && t.loses(member, g)
	switch {
	case lost && w.lost == maxLost:
		w.top.addOrphan(g, p, true)
		return false
	case !moved && (from == nil || member < 0 || !t.forsake(member, g)):
		w.top.addOrphan(g, p, member >= 0 && !t.owns(member, g))
	case t.reaches(g):
		again.place(w.top, g, p, t.route)
	default:
		w.top.addOrphan(g, p, true)
	}
	return lost
}

// goOn pauses, and reports whether the groups are to be asked again then.
func (w *walk) goOn(ctx context.Context, pause time.Duration) bool {
	now := time.Now()
	if w.wait > 0 { // the node said that it answers them then
		w.due = w.top.router.due(ctx, now.Add(pause))
	}
	if w.hops > maxHops || !now.Add(pause).Before(w.due) {
		return false
	}
	pauseFor(ctx.Done(), pause)
	return ctx.Err() == nil
}

// spanOfWait makes the span of the wait for a standby, if answers were deferred. It belongs to the hop on which the first
// of them was, or else to the check of ctx.
func (w *walk) spanOfWait(ctx context.Context) {
	if w.deferred.IsZero() {
		return
	}
	if tracer := w.top.router.tracerOf(ctx); tracer != nil {
		if w.hop != nil {
			ctx = trace.ContextWithSpan(ctx, w.hop)
		}
		_, span := tracer.Start(ctx, "weir.strict_wait", trace.WithTimestamp(w.deferred))
		span.End()
	}
}

// waitsForStandby reports whether deferred answers are asked for once more.
func (w *walk) waitsForStandby() bool {
	now := time.Now()
	if w.deferred.IsZero() {
		w.deferred = now
	}
	return now.Sub(w.deferred) < strictPatience
}
