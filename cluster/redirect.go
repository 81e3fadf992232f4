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
