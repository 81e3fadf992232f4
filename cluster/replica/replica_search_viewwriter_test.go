package replica

import (
	"slices"

	"github.com/weirlimit/weir/cluster/view"
)

// nextKey is all that the views which follow depend on.
type nextKey struct {
	last         worldView
	number       uint8
	reported     [worldNodes]nodeReport
	lives        lives4
	alive        uint8
	saidFarewell uint8
	moves        bool
}

// nextView is a view that may follow.
type nextView struct {
	worldView
	blind bool // its writer knows nothing of the owner's end
}

// write has the writer of views write what Next says, with any plan and anything that it may have seen of the nodes.
func (s *search) write(x *world, visit emit) {
	if x.written == worldViews {
		return
	}
	key := nextKey{last: *x.last(), number: x.written, moves: int(x.moves) < s.moves}
	for i := range x.nodes {
		n := &x.nodes[i]
		key.lives |= lives4(n.life) << (4 * i)
		if n.alive {
			key.alive |= 1 << i
		}
		if n.saidFarewell {
			key.saidFarewell |= 1 << i
		}
		key.reported[i] = s.believed(n.reported, x.written)
	}
	free, found := s.written[key]
	if !found {
		free = s.follow(&key)
		s.written[key] = free
	}
	for _, v := range free {
		y := *x
		y.views[y.written] = v.worldView
		y.written++
		if costs(&key, &v.worldView) {
			y.moves++
		}
		if v.blind && v.owner == key.last.owner && !x.isAlive(v.owner) {
			y.lose() // the standby that had more than its successor is replaced after the owner has died
			y.inexact = true
		}
		if x.beginsBlind(&v.worldView) {
			y.lose()
		}
		visit(&y, "a view is written")
	}
}

// believed returns what the writer of view number+1 goes by: what was reported, unless a rule is broken. Reports that count for nothing
// are one and the same.
func (s *search) believed(r nodeReport, number uint8) nodeReport {
	r.complete = r.complete && r.adopted == number
	if s.broken == ruleSettled || s.broken == ruleComplete {
		r.settled = r.settled || s.broken == ruleSettled
		r.complete = r.complete || s.broken == ruleComplete
		r.adopted = number
	}
	if !r.settled && !r.complete {
		return nodeReport{}
	}
	return r
}

// beginsBlind reports whether a node begins with fresh counters, and the only predecessors that live are no members.
func (w *world) beginsBlind(v *worldView) bool {
	last := w.last()
	if v.owner == last.owner || v.owner == last.standby || last.preds.has(v.owner) {
		return false
	}
	for k := range 4 {
		if l := last.preds.at(k); w.isAlive(l) && last.members.has(l) {
			return false
		}
	}
	return true
}

// costs reports whether a view need not be: it moves something that works.
func costs(k *nextKey, v *worldView) bool {
	up := func(l life) bool { return l != 0 && k.alive>>l.node()&1 == 1 && k.lives.at(l.node()) == l }
	dropped := k.last.standby != 0 && v.standby == 0 && v.owner != k.last.standby && up(k.last.standby)
	return v.owner != k.last.owner && up(k.last.owner) || v.standby != 0 && v.standby != k.last.standby || dropped
}

// follow returns the views that may follow.
func (s *search) follow(k *nextKey) (views []nextView) {
	add := func(v *view.View, seen view.Seen) {
		if v == nil {
			return
		}
		part := &v.Partitions[0]
		next := nextView{worldView: worldView{codeOf(part.Owner), codeOf(part.Standby), uint8(part.Term), packLives(v.Lives()), packLives(part.Predecessors)}}
		owner := lifeTable[k.last.owner]
		next.blind = !slices.ContainsFunc(seen.Nodes, func(m view.Member) bool { return m.ID == owner.ID }) && !slices.Contains(seen.Farewells, owner)
		if !slices.Contains(views, next) && (k.moves || !costs(k, &next.worldView)) {
			views = append(views, next)
		}
	}
	v := k.view()
	for _, seen := range s.sights(k) {
		for _, plan := range []view.Plan{{{Owner: "a", Standby: "b"}}, {{Owner: "a", Standby: "c"}}, {{Owner: "b", Standby: "a"}}, {{Owner: "b", Standby: "c"}}, {{Owner: "c", Standby: "a"}}, {{Owner: "c", Standby: "b"}}} {
			add(s.next(v, seen, k.reports(), plan), seen)
		}
	}
	return views
}

// view returns the newest view. Which members may change is for the search of electorates: here they always may.
func (k *nextKey) view() *view.View {
	v := &view.View{Number: uint64(k.number), Electorate: view.Electorate{Changed: 1, Waived: uint64(k.number)}}
	for _, l := range k.last.members.unpack() {
		v.Members = append(v.Members, view.Member{Life: l})
	}
	v.Partitions = []view.Partition{{Owner: lifeTable[k.last.owner], Term: uint64(k.last.term), Standby: lifeTable[k.last.standby], Predecessors: k.last.preds.unpack()}}
	return v
}

func (k *nextKey) reports() (r view.Reports) {
	for i := range worldNodes {
		report := view.Report{Life: lifeTable[k.lives.at(i)], Adopted: uint64(k.reported[i].adopted)}
		if k.reported[i].settled {
			report.Settled = view.Set{0}
		}
		if k.reported[i].complete {
			report.Complete = view.Set{0}
		}
		r = append(r, report)
	}
	return r
}

// sights returns what the writer may see: nothing, one node as it is, all as they are, a node that runs as gone, and one that has said farewell as if it ran.
func (s *search) sights(k *nextKey) (sights []view.Seen) {
	all := view.Seen{}
	sights = append(sights, all)
	for i := range worldNodes {
		m := view.Member{Life: lifeTable[k.lives.at(i)], State: view.Gone}
		if k.alive>>i&1 == 1 {
			if m.State = view.Ready; s.suspects && k.moves {
				gone := m
				gone.State = view.Gone
				sights = append(sights, view.Seen{Nodes: []view.Member{gone}})
			}
		}
		if k.saidFarewell>>i&1 == 1 {
			registered := m
			registered.State = view.Ready
			sights = append(sights, view.Seen{Nodes: []view.Member{registered}, Farewells: []view.Life{m.Life}})
			all.Farewells = append(all.Farewells, m.Life)
		}
		sights = append(sights, view.Seen{Nodes: []view.Member{m}})
		all.Nodes = append(all.Nodes, m)
	}
	return append(sights, all)
}
