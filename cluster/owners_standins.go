package cluster

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/view"
)

// standIns finds out which lives stand in for others, by what the Owners knows that it is a part of.
type standIns struct {
	o           *Owners
	byPartition atomic.Pointer[[]view.Life] // replaced by find
	present     presence                    // of the members of the view, as it was looked last; guarded by o.mu
	wasHalted   bool                        // whether this node did not run just before it looked last for lost members; guarded by o.mu
}

// all returns by partition the life that stands in for those that have its counters, the zero value for none; nil if there are none at all.
func (s *standIns) all() []view.Life { return *s.byPartition.Load() }

// presence is which members are lost, and which ones can stand in.
type presence struct {
	lost    map[view.Life]bool
	serving view.Serving
	found   time.Time // when find has used it
}

// lookSometimes looks which members are lost, and finds out which lives stand in for those: if others are, and once a second, as reports change it.
func (s *standIns) lookSometimes() {
	o := s.o
	wasHalted := o.node.WasHalted()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.view == nil {
		return
	}
	s.wasHalted = wasHalted // what others have said may be waiting to be read
	was := s.present
	if s.look(); len(was.lost)+len(s.present.lost) == 0 {
		return
	}
	if isSame := maps.Equal(was.lost, s.present.lost) && was.serving.Equal(s.present.serving); !isSame || time.Since(was.found) >= time.Second {
		s.find()
	} else {
		s.present.found = was.found
	}
}

// look looks which members are lost. o.mu is held.
func (s *standIns) look() {
	o := s.o
	s.present = presence{lost: make(map[view.Life]bool)}
	said := sync.OnceValue(o.knownMembers.saidLost)
	for _, m := range o.view.Members {
		if s.hasLost(m, said) {
			s.present.lost[m.Life] = true
		}
	}
	if len(s.present.lost) > 0 {
		s.present.serving = o.view.ServingOf(func(l view.Life) bool { return s.serves(l, said) })
	}
}

// find finds out which lives stand in for owners that have said farewell, or for all that may have a copy. o.mu is held.
func (s *standIns) find() {
	o := s.o
	var lives []view.Life
	farewells := o.Farewells()
	s.present.found = time.Now()
	if len(farewells)+len(s.present.lost) > 0 {
		plan, reports := o.Plan(o.view), o.newest.All()
		isLost := func(l view.Life) bool { return s.present.lost[l] }
		for p := range o.view.Partitions {
			l := o.view.StandIn(p, plan, farewells, reports)
			if l == (view.Life{}) && len(s.present.lost) > 0 {
				l = o.view.LastResort(p, plan, reports, isLost, s.present.serving)
			}
			if l != (view.Life{}) {
				if lives == nil {
					lives = make([]view.Life, len(o.view.Partitions))
				}
				lives[p] = l
			}
		}
	}
	s.byPartition.Store(&lives)
}

// hasLost reports whether a life is gone without a farewell, by which it is known to be back or to have left what it had: a later one of its node is a member, or
// neither this node nor another one that it reaches has reached any life of that node for a while, each by its own account. A later life stands in by itself only
// for one that is a member. o.mu is held.
func (s *standIns) hasLost(m view.Member, said func() map[string]bool) bool {
	o := s.o
	switch {
	case s.wasHalted, o.knownMembers.hasSaidFarewell(m.Life), o.knownMembers.Reached(m.Life):
		return false
	case o.view.IsReplaced(m.Life), m.State == view.Gone && o.knownMembers.hasEnded(m.Life):
		return true
	}
	return m.ID != o.Self.ID && s.isLost(m.ID, said) && !o.knownMembers.isReplaced(m.ID) && !o.knownMembers.hasJustLost(m.ID)
}

// isLost reports whether no life of a node has answered this one for a while, or none ever has and others have said that they have lost it.
func (s *standIns) isLost(id string, said func() map[string]bool) bool {
	o := s.o
	lost, ever := o.Router.lostFor(id)
	if !ever {
		return lost >= ownership.StandInAfter || lost >= lastResortAfter && said()[id]
	}
	return lost >= lastResortAfter
}

// serves reports whether a member can stand in. One that is late still does: else each pause of it would have another one grant a limit. o.mu is held.
func (s *standIns) serves(l view.Life, said func() map[string]bool) bool {
	o := s.o
	switch {
	case l == o.life():
		return !o.IsOver()
	case l.ID == o.Self.ID, o.knownMembers.hasEnded(l):
		return false
	}
	return o.knownMembers.Reached(l) || !s.isLost(l.ID, said)
}
