package cluster

import (
	"context"
	"time"
)

// exchange asks all peers first, then the local shard, and then waits for all together.
// It returns how long to wait before unanswered is asked again, 0 if there is no need.
func (s *scatter) exchange(ctx context.Context, due time.Time) (again time.Duration) {
	if len(s.dispatches) == 0 {
		return s.decideLocal(ctx, due)
	}
	r, now := s.router, time.Now()
	a := r.newCall(ctx, now, due)
	if a != nil {
		a.how = s.how
		for i := range s.dispatches {
			e := &s.dispatches[i]
			e.hop = r.startHop(ctx, e.peer.member, s.how)
			a.span = contextOf(e.hop)
			var err error
			if e.first, err = e.conn.enqueue(a, e.groups, e.hot); err != nil {
				e.peer.metrics.refused(err, e.groups)
			}
			e.sent = err == nil
		}
	}
	again = s.decideLocal(ctx, due)
	if a != nil {
		if r.wait(ctx, a) {
			s.giveUp(a)
			<-a.done
		}
		again = max(again, time.Duration(a.again.Load()))
		r.calls.Put(a)
	}
	for i := range s.dispatches {
		e := &s.dispatches[i]
		e.peer.metrics.countAnswers(e.groups)
		endHop(e.hop, e.groups)
		for j, c := range e.hot {
			r.hot.learn(c, e.groups[j], e.conn, now)
		}
	}
	return again
}

// decideLocal returns how long to wait before what was not answered is asked again.
func (s *scatter) decideLocal(ctx context.Context, due time.Time) (again time.Duration) {
	r := s.router
	again = r.own.decideHere(s.local, due)
	if s.how != asOwner && len(s.local) > 0 {
		if patience := time.Now().Add(r.own.patience()); patience.Before(due) {
			due = patience
		}
		again = max(again, r.own.decideCopies(ctx, s.local, s.how, due))
	}
	for i, g := range s.from {
		g.Allowed, g.TokenLease, g.Deferred, g.By = s.local[i].Allowed, s.local[i].TokenLease, s.local[i].Deferred, s.local[i].By
		if redirected(g) {
			r.table.Load().redirectedHere(g)
		}
	}
	return again
}

func (s *scatter) giveUp(a *call) {
	now := time.Now()
	for i := range s.dispatches {
		if e := &s.dispatches[i]; e.sent {
			e.conn.giveUp(a, e.first, now)
		}
	}
}
