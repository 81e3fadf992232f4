package cluster

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
)

// knownMembers are the other members and predecessors that the newest view names, and which of them this node reaches. It is safe for concurrent use.
type knownMembers struct {
	self   func() view.Life // this life of the node
	router *Router
	byLife atomic.Pointer[map[view.Life]*otherMember] // replaced by Owners.meet

	farewells atomic.Pointer[[]view.Life] // that have said farewell, of those that the view names; replaced by Owners.keepFarewells
}

// all returns the other members and predecessors.
func (m *knownMembers) all() []*otherMember { return slices.Collect(maps.Values(*m.byLife.Load())) }

// of returns the member that is that life, nil if the view does not name it.
func (m *knownMembers) of(l view.Life) *otherMember { return (*m.byLife.Load())[l] }

// beatSoon has all other members sent what this node reports: it is news, for which a view may wait.
func (m *knownMembers) beatSoon() {
	for _, c := range m.all() {
		c.beatSoon()
	}
}

// account has an answer to a heartbeat say of which members this node reaches the life that its view names, or another one, and which ones have not answered it for
// a while, although they did before, or for less than that. After a halt, what it has lost only just before, or since, is among the last: they may have answered
// meanwhile. ranUntil is when it ceased to run, the zero value if it was not halted.
func (m *knownMembers) account(answer *peerv1.HeartbeatResponse, ranUntil time.Time) {
	members, reaches := m.router.Members()
	for i, member := range members {
		since, ever := m.router.lostFor(member.ID)
		if !ranUntil.IsZero() {
			since -= time.Since(ranUntil)
		}
		switch c := m.of(member.life()); {
		case reaches[i] && c != nil && c.isItself():
			answer.Reaches = append(answer.Reaches, member.ID)
		case reaches[i] && c != nil:
			answer.Replaced = append(answer.Replaced, member.ID)
		case reaches[i] || !ever:
		case since < lastResortAfter:
			answer.JustLost = append(answer.JustLost, member.ID)
		default:
			answer.Lost = append(answer.Lost, member.ID)
		}
	}
}

// saidLost returns the ids of the members that others have lost, once each of those that are not lost has said which ones it has. What a later life says does not
// count yet.
func (m *knownMembers) saidLost() (ids map[string]bool) {
	var silent []string
	ids = make(map[string]bool)
	members, _ := m.router.Members()
	for _, member := range members {
		c := m.of(member.life())
		if member.ID == m.self().ID || m.hasEnded(member.life()) || c != nil && !c.isItself() {
			continue
		}
		if c != nil && m.heeds(c) {
			if said := c.lately(); said != nil {
				for _, id := range said.GetLost() {
					ids[id] = true
				}
				continue
			}
		}
		silent = append(silent, member.ID)
	}
	if slices.ContainsFunc(silent, func(id string) bool { return !ids[id] }) {
		return nil
	}
	return ids
}

// hasJustLost reports whether a member that counts has lost the one of that id for less than lastResortAfter, by what it has said. It is asked again then.
func (m *knownMembers) hasJustLost(id string) (is bool) {
	for _, c := range m.all() {
		if slices.Contains(c.lately().GetJustLost(), id) && m.heeds(c) {
			is = true
			c.askAgain()
		}
	}
	return is
}

// isReplaced reports whether a member that counts has said that it reaches another life of the one of that id.
func (m *knownMembers) isReplaced(id string) bool {
	return slices.ContainsFunc(m.all(), func(c *otherMember) bool { return slices.Contains(c.lately().GetReplaced(), id) && m.heeds(c) })
}

// Reached reports whether a life answers this node, or another one that has said so since it does not answer this one, or may say so yet. A life does
// not once another one of its id is a member, or answers.
func (m *knownMembers) Reached(l view.Life) bool {
	c := m.of(l)
	if c == nil {
		return l == m.self()
	}
	if !c.isItself() || m.hasEnded(l) {
		return false
	}
	lost, reaches := m.router.lostAt(l.ID)
	saysSo := func(other *otherMember) bool {
		if !other.reachesLately(l.ID, lost) || !m.heeds(other) {
			return false
		}
		if time.Since(lost) < askAgainFor {
			other.askAgain()
		}
		return true
	}
	return reaches || slices.ContainsFunc(m.all(), saysSo) || m.awaitsWord(l.ID, lost)
}

// heeds reports whether what a member has said of another one counts: it answers this node, or did until just now. Else it can relay nothing, and may be gone
// itself.
func (m *knownMembers) heeds(c *otherMember) bool {
	lost, reaches := m.router.lostAt(c.member.ID)
	return (reaches || time.Since(lost) < wordWithin) && c.isItself() && !m.hasEnded(c.member.life())
}

// Unconnected implements Electorate.
func (m *knownMembers) Unconnected() (pairs []view.Pair) {
	others := m.all()
	for _, c := range others {
		if !m.router.Reaches(c.member.ID) || c.missesLately(m.self().ID) {
			pairs = append(pairs, view.Pair{m.self(), c.member.life()})
		}
		for _, other := range others {
			if other != c && c.missesLately(other.member.ID) {
				pairs = append(pairs, view.Pair{c.member.life(), other.member.life()})
			}
		}
	}
	return pairs
}

// askAboutLost asks all members which ones they reach, each time that one has ceased to answer this node, until ctx ends. Checks need the answer at once.
func (m *knownMembers) askAboutLost(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.router.losses:
			m.beatSoon()
		}
	}
}

// awaitsWord reports whether a member that this node reaches has not said yet whether it reaches one that this node has lost just now.
func (m *knownMembers) awaitsWord(id string, lost time.Time) bool {
	if time.Since(lost) >= wordWithin {
		return false
	}
	for _, c := range m.all() {
		if _, heard := c.last(); c.member.ID != id && m.router.Reaches(c.member.ID) && heard.Before(lost) {
			return true
		}
	}
	return false
}

// hasEnded reports whether a life has said farewell, or a later life of its id is a member, or has answered, or is this node.
func (m *knownMembers) hasEnded(l view.Life) bool {
	if l.ID == m.self().ID {
		return l != m.self()
	}
	if m.hasSaidFarewell(l) {
		return true
	}
	if v := m.router.View(); v != nil { // it has none while the first is adopted
		if i, member := v.Index(l.ID); member && v.Members[i].Incarnation > l.Incarnation {
			return true
		}
	}
	c := m.of(l)
	return c != nil && max(c.answered.Load(), m.router.incarnationOf(l.ID)) > l.Incarnation
}

// hasSaidFarewell reports whether a life has said farewell.
func (m *knownMembers) hasSaidFarewell(l view.Life) bool {
	return slices.Contains(*m.farewells.Load(), l)
}
