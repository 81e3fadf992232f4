package cluster

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir/shard"
)

// standbyPatience is how many attempts may be made in all for what the owners have not answered.
// They take no more of its caller's time than so many do.
const standbyPatience = 2

// fallback asks for the orphans of top: of what has moved first the owner, which is about to
// get it, then of the rest the standby. Where that does not answer either, the members are asked that reach it
// or the owner, one after the other. Any of them may be this node. What all of them say they do not have is asked for again until there is no time.
type fallback struct {
	router *Router
	ctx    context.Context
	t      *routingTable
	top    *scatter
	over   time.Time // no member is asked any more then
	stages []*scatter
	again  int // groups that were asked for again after a pause
}

// askStandbys asks for the orphans of s.
func (s *scatter) askStandbys(ctx context.Context) {
	r := s.router
	f := &fallback{router: r, ctx: ctx, t: r.table.Load(), top: s, over: r.overAt(ctx, time.Now())}
	f.askRelays(f.askOwners())
	f.askAgain()
	f.end()
}

// overAt returns when no member is asked any more for what the owners have not answered by now.
func (r *Router) overAt(ctx context.Context, now time.Time) time.Time {
	patience := standbyPatience * r.attempt
	if deadline, ok := ctx.Deadline(); ok {
		rest := 1 - math.Pow(1-attemptShare, standbyPatience)
		patience = min(patience, time.Duration(rest*float64(deadline.Sub(now))))
	}
	return now.Add(patience)
}

// stage returns what is to be asked at once.
func (s *fallback) stage() *scatter {
	stage := newScatter(s.router, s.t)
	stage.how = asStandby
	s.stages = append(s.stages, stage)
	return stage
}

func (s *fallback) ask(stage *scatter) {
	if stage.size() == 0 {
		return
	}
	due := s.router.due(s.ctx, time.Now())
	if s.over.Before(due) {
		due = s.over
	}
	stage.exchange(s.ctx, due)
}

// left calls f for what a stage has asked for, and that may be asked of others.
func (s *fallback) left(stage *scatter, f func(to *peer, g *shard.Group, p *part)) {
	stage.each(func(to *peer, g *shard.Group, p *part) {
		if undecided(g) && !stage.isLost(g) {
			f(to, g, p)
		}
	})
}

// askOwners asks the owners of what has moved, and returns whom to ask about the rest, their standbys.
func (s *fallback) askOwners() (standbys *scatter) {
	owners, standbys := s.stage(), s.stage()
	var vacant []int // the orphans that the owner is about to decide, by its own word
	for i, left := range s.top.orphans {
		relax(left.group)
		switch {
		case left.redirected && !s.t.isVacant(left.group.Takes[0].Key):
			owners.place(s.top, left.group, left.part, s.t.owner)
			continue
		case left.redirected:
			vacant = append(vacant, i)
		}
		standbys.place(s.top, left.group, left.part, s.t.standsBy(0, left.redirected))
	}
	s.ask(owners)
	noteExpected(s.top.orphans)
	for _, i := range vacant {
		s.top.orphans[i].expected = !frees(s.top.orphans[i].group)
	}
	s.turnTo(standbys, owners)
	return standbys
}

// turnTo assigns what the owners have not decided to standbys, except what is moving: it is asked for again.
func (s *fallback) turnTo(standbys, owners *scatter) {
	t := standbys.table
	s.left(owners, func(_ *peer, g *shard.Group, p *part) {
		if !t.isMoving(g) {
			standbys.place(s.top, g, p, t.standsBy(0, redirected(g)))
		}
	})
}

// askRelays asks standbys, and then the members that reach them or the owner, until there are no more.
func (s *fallback) askRelays(standbys *scatter) {
	// Of what is in others the standby was asked before, of what is in standbys at most just now.
	for try, others := 0, s.stage(); standbys.size()+others.size() > 0; try++ {
		nextStandbys, nextOthers := s.stage(), s.stage()
		viaRelay := func(_ *peer, g *shard.Group, p *part) {
			if s.t.relayFor(try)(g.Takes[0].Key) != noMember {
				nextOthers.place(s.top, g, p, s.t.relayFor(try))
			}
		}
		s.ask(standbys)
		s.left(standbys, func(to *peer, g *shard.Group, p *part) {
			switch {
			case s.t.peerOf(s.t.standby(g.Takes[0].Key)) != to: // it was asked for another member
				nextStandbys.place(s.top, g, p, s.t.standsBy(try+1, false))
			case !redirected(g):
				viaRelay(to, g, p)
			}
		})
		s.ask(others)
		s.left(others, viaRelay)
		standbys, others = nextStandbys, nextOthers
	}
}

// noteExpected records what the owners, which were asked just now, do not have. A refund may be counted by another
// node that it is sent to then, so it is not asked for again.
func noteExpected(asked []orphan) {
	for i := range asked {
		o := &asked[i]
		o.expected = redirected(o.group) && !frees(o.group)
	}
}

// askAgain asks for what the owner, or the standby, says to have not, as it, or a copy of it, is on its way: the owners, or the nodes that have become
// owners, and then the standbys, until there is no time.
func (s *fallback) askAgain() {
	waiting := slices.Clone(s.top.orphans)
	for time.Now().Add(copyPause).Before(s.over) {
		waiting = slices.DeleteFunc(waiting, func(w orphan) bool {
			g := w.group
			return !redirected(g) && !(w.expected && undecided(g)) || !s.t.inOnePartition(g) // what is not may have parted by now
		})
		if len(waiting) == 0 || s.ctx.Err() != nil {
			return
		}
		pauseFor(s.ctx.Done(), copyPause)
		s.again += len(waiting)
		s.askOnce(waiting)
	}
}

func (s *fallback) askOnce(waiting []orphan) {
	t := s.router.table.Load()
	owners, standbys := newScatter(s.router, t), newScatter(s.router, t)
	defer owners.free()
	defer standbys.free()
	owners.how, standbys.how = asStandby, asStandby
	for _, w := range waiting {
		forget(w.group) // else an owner that does not answer seems to redirect still
		owners.place(s.top, w.group, w.part, t.owner)
	}
	s.ask(owners)
	noteExpected(waiting)
	s.turnTo(standbys, owners)
	s.ask(standbys)
	for _, w := range waiting {
		if g := w.group; undecided(g) && !redirected(g) {
			setSource(g, shard.Redirected) // as it was: it is asked for again
		}
	}
}

// end leaves what no member has decided as if it was not asked.
func (s *fallback) end() {
	asked := s.again
	for _, stage := range s.stages {
		asked += stage.size()
		stage.each(func(_ *peer, g *shard.Group, _ *part) {
			if undecided(g) {
				forget(g)
			}
		})
		stage.free()
	}
	s.router.metrics.toStandby.Add(float64(asked))
}
