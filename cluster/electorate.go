package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// This file says when a member no longer decides by a view that is over. A member decides as long as a majority
// of the members of its view answer it and know no newer view. An owner has therefore ended only when at least
// half of those members, rounded up, have adopted a view without it, and its lease is gone. That is safe as long
// as the members do not change faster than views are adopted: they change again only once half of the members
// from before the last change have adopted that change. TestSearchElectorates searches these rules.

// Life is one life of a node: a later incarnation of the same id is another one.
type Life struct {
	ID          string `json:"id"`
	Incarnation uint64 `json:"incarnation"`
}

func (m Member) life() Life { return Life{m.ID, m.Incarnation} }

func livesOf(members []Member) (lives []Life) {
	for _, m := range members {
		lives = append(lives, m.life())
	}
	return lives
}

// adoption is the newest view that one life of a node is known to have adopted.
type adoption struct{ incarnation, view uint64 }

// adoptions is what a node knows of them, by id. They only ever rise.
type adoptions map[string]adoption

// note records an adoption, and reports whether it was new. Incarnations that no registry has counted are
// ignored: they cannot be compared, and confirm no decision lease.
func (a adoptions) note(l Life, view uint64) (news bool) {
	had := a[l.ID]
	if l.Incarnation == 0 || l.Incarnation >= uncounted || view == 0 ||
		cmp.Or(cmp.Compare(l.Incarnation, had.incarnation), cmp.Compare(view, had.view)) <= 0 {
		return false
	}
	a[l.ID] = adoption{l.Incarnation, view}
	return true
}

// keep forgets those that matter neither to v nor to what followed it: so there are at most as many as v names lives.
func (a adoptions) keep(v *View) {
	maps.DeleteFunc(a, func(id string, _ adoption) bool { return !v.names(id) })
}

// names reports whether v says anything about a node of that id.
func (v *View) names(id string) bool {
	_, member := v.Index(id)
	is := func(l Life) bool { return l.ID == id }
	return member || slices.ContainsFunc(v.Before, is) || slices.ContainsFunc(v.GivenUp, is)
}

// isPast reports whether l no longer confirms decision leases of views before number, as far as is known and v
// says.
func (a adoptions) isPast(v *View, l Life, number uint64) bool {
	if i, member := v.Index(l.ID); member && v.Members[i].Incarnation > l.Incarnation {
		return true
	}
	known := a[l.ID]
	return known.incarnation > l.Incarnation || known.incarnation == l.Incarnation && known.view >= number || slices.Contains(v.Ended, l)
}

// half reports whether at least half of lives, rounded up, no longer confirm decision leases of views before
// number.
func (a adoptions) half(v *View, lives []Life, number uint64) bool {
	past := 0
	for _, l := range lives {
		if a.isPast(v, l, number) {
			past++
		}
	}
	return past >= (len(lives)+1)/2
}

// confirmed reports whether half of the members from before the last change of members have adopted that change, so that
// the members may change again.
func (a adoptions) confirmed(v *View) bool {
	return v.Changed <= v.Waived || a.half(v, v.Before, v.Changed)
}

// ended reports whether no majority still confirms the decision lease of an owner that lost its partitions with
// that epoch. It was a member of the view before: of v's members unless these have changed since.
func (a adoptions) ended(v *View, epoch uint64) bool {
	return epoch <= v.Waived || a.confirmed(v) && (epoch <= v.Changed || a.half(v, livesOf(v.Members), epoch))
}

// missing returns the lives that are not known to have adopted what v waits for, sorted by id.
func (a adoptions) missing(v *View) (lives []Life) {
	for _, l := range v.Before {
		if !a.isPast(v, l, v.Changed) {
			lives = append(lives, l)
		}
	}
	return lives
}

// maxGivenUp bounds View.GivenUp: the last ones are kept.
const maxGivenUp = 64

// waive has v, which is not known yet, go on without those that are missing of current.
func (v *View) waive(current *View, missing []Life) {
	v.Waived = current.Number
	for _, l := range missing {
		if !slices.Contains(v.GivenUp, l) {
			v.GivenUp = append(v.GivenUp, l)
		}
	}
	v.GivenUp = v.GivenUp[max(0, len(v.GivenUp)-maxGivenUp):]
}

// end has v, which is not known yet, count lives for ended, as far as it names them.
func (v *View) end(lives []Life) {
	for _, l := range lives {
		if !slices.Contains(v.Ended, l) {
			v.Ended = append(v.Ended, l)
		}
	}
	v.forget()
}

// forget drops what v, which is not known yet, says of lives that no longer matter.
func (v *View) forget() {
	v.GivenUp = slices.DeleteFunc(v.GivenUp, func(l Life) bool {
		i, member := v.Index(l.ID)
		return member && v.Members[i].Incarnation > l.Incarnation || slices.Contains(v.Ended, l)
	})
	v.Ended = slices.DeleteFunc(v.Ended, func(l Life) bool {
		i, member := v.Index(l.ID)
		return !slices.Contains(v.Before, l) && !(member && v.Members[i].Incarnation == l.Incarnation)
	})
}

// sameIDs reports whether two lists of members, sorted by id, have the same ids.
func sameIDs(a, b []Member) bool {
	return slices.EqualFunc(a, b, func(x, y Member) bool { return x.ID == y.ID })
}

// Electorate says which views the members have adopted. Ownership implements it.
type Electorate interface {
	// Confirmed reports whether half of the members from before the last change of members are known to have adopted it,
	// so that the members may change again.
	Confirmed(v *View) bool
	// Missing returns those that are not known to have.
	Missing(v *View) []Life
	// Returned reports whether a life that was given up is known to have adopted a view since, or to have ended.
	Returned(v *View, l Life) bool
	// Consider records what the registry holds: of which nodes the members are to find out whether they reach them.
	Consider(v *View, nodes []Node)
	// Admits reports whether enough members of the view that was last considered reach a node that would be a member.
	Admits(n Node) bool
	// Accused returns the members of that view that a majority of its members have not reached for long.
	Accused() []Life
}

// Confirmed implements Electorate.
func (k *Ownership) Confirmed(v *View) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.adopted.confirmed(v)
}

// Missing implements Electorate.
func (k *Ownership) Missing(v *View) []Life {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.adopted.missing(v)
}

// Returned implements Electorate.
func (k *Ownership) Returned(v *View, l Life) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.adopted.isPast(v, l, v.Waived)
}

// doubtAfter is how long a change of members may go unadopted before that is a problem to tell of.
const doubtAfter = 3 * time.Second

// noteChange records what a view that follows old says about changes of members.
func (k *Ownership) noteChange(old, v *View) {
	if old == nil || v.Changed != old.Changed {
		k.changed = time.Now()
	}
	if old != nil && v.Waived > old.Waived {
		k.metrics.waived.Inc()
	}
}

// Doubts returns which lives have not adopted the last change of members for a while, so that members cannot change again, and
// which were given up and may still decide if they live. Both are sorted by id.
func (k *Ownership) Doubts() (missing, givenUp []Life) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view == nil {
		return nil, nil
	}
	if !k.adopted.confirmed(k.view) && time.Since(k.changed) >= doubtAfter {
		missing = k.adopted.missing(k.view)
	}
	for _, l := range k.view.GivenUp {
		if !k.adopted.isPast(k.view, l, k.view.Waived) {
			givenUp = append(givenUp, l)
		}
	}
	return missing, givenUp
}

// Depart ends that this node confirms decision leases of others: it is about to report that it has left, and may
// end before it learns of another view.
func (k *Ownership) Depart() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.departed = true
}

// tell returns what this node knows of adoptions, for others.
func (k *Ownership) tell() []*peerv1.Adoption {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*peerv1.Adoption, 0, len(k.adopted))
	for id, a := range k.adopted {
		all = append(all, &peerv1.Adoption{Id: id, Incarnation: a.incarnation, View: a.view})
	}
	return all
}

// learn records what a node that has spoken to this one has adopted, and of what it knows of others.
func (k *Ownership) learn(from Life, view uint64, others []*peerv1.Adoption) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view == nil {
		return
	}
	news := k.view.names(from.ID) && k.adopted.note(from, view)
	for _, o := range others[:min(len(others), len(k.parts))] {
		if k.view.names(o.GetId()) && k.adopted.note(Life{o.GetId(), o.GetIncarnation()}, o.GetView()) {
			news = true
		}
	}
	if news {
		k.noteUnconfirmed()
	}
}
