package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// plannedEvery is the least time between two views that only move what works.
const plannedEvery = time.Second

// viewWriter writes views that name the node which has each partition, when that falls to this node. Membership runs it.
type viewWriter struct {
	*Membership
	owners  *Owners
	store   PlacementStore
	planned time.Time // when the last view was written that only moved what works
}

// PlacementStore stores views that name the node which has each partition.
type PlacementStore interface {
	// SwapPlacement stores a view as Registry.SwapView does.
	SwapPlacement(ctx context.Context, placement *view.View, revision int64) error
}

// NewViewWriter has the Membership of a node write views that name the node which has each partition, and returns it.
func NewViewWriter(m *Membership, o *Owners, store PlacementStore) *Membership {
	m.policy = &viewWriter{Membership: m, owners: o, store: store}
	return m
}

func (w *viewWriter) adoptView(content RegistryContent) {
	if content.Placement == nil {
		return
	}
	current := w.router.View()
	w.owners.Update(content)
	w.owners.Adopt(content.Placement)
	if now := w.router.View(); now != current {
		w.logView(current, now)
	}
}

func (w *viewWriter) writeView(ctx context.Context, content RegistryContent) (wait time.Duration) {
	now := time.Now()
	w.noteMissing(content, now) // also while others write: keys come back meanwhile
	w.noteWaiting(content, now)
	w.electors.Consider(content.View, content.Nodes)
	accused := slices.DeleteFunc(w.accused(content), func(l Life) bool { return content.Placement != nil && !content.Placement.IsMember(view.Life(l)) })
	content.Nodes = without(content.Nodes, accused)
	if len(content.Nodes) == 0 || writer(content.View, content.Nodes) != w.self {
		return 0
	}
	admitted, _ := w.admitted(content, now)
	if wait := w.nextTry.Sub(now); wait > 0 {
		return wait
	}
	next, urgency := w.next(content, admitted, accused, now)
	switch {
	case next == nil:
		return confirmEvery
	case urgency == view.Planned && now.Sub(w.planned) < plannedEvery:
		return min(confirmEvery, plannedEvery-now.Sub(w.planned))
	}
	if err := w.swap(ctx, next, content, accused); err != nil {
		w.nextTry = now.Add(confirmEvery)
		return confirmEvery
	}
	if urgency == view.Planned {
		w.planned = now
	}
	return confirmEvery
}

// next returns the view that is to be written, nil if there is none.
func (w *viewWriter) next(content RegistryContent, admitted []Node, accused []Life, now time.Time) (*view.View, view.Urgency) {
	v := content.Placement
	if v == nil {
		i := slices.IndexFunc(admitted, func(n Node) bool { return n.ID == w.self && n.State == Ready })
		if i < 0 {
			return nil, view.Nothing
		}
		only := &view.View{Members: []view.Member{memberOf(admitted[i], view.Ready)}}
		return view.First(only.Members, w.owners.plan(only)), view.Urgent
	}
	reports := w.owners.Reports()
	overdue := w.isOverdue(v, reports, now)
	seen := view.Seen{Nodes: w.seen(v, admitted, accused, now), Most: w.params.MaxMembers(), Overdue: overdue, Silent: w.silent(v)}
	next, urgency := view.Next(v, seen, reports, w.owners.plan(v))
	if next != nil && overdue {
		w.log.Warn("members change although fewer than half have adopted the last change: those that are missing may still grant, if they live",
			"view", v.Number, "missing", v.Missing(reports), "waited", waiveAfter)
	}
	return next, urgency
}

// isOverdue reports whether it is not waited for any longer that half of the members adopt the last change.
func (w *viewWriter) isOverdue(v *view.View, reports view.Reports, now time.Time) bool {
	if v.Confirmed(reports) {
		w.unsure = 0
		return false
	}
	if w.unsure != v.Changed {
		w.unsure, w.since = v.Changed, now
	}
	return now.Sub(w.since) >= waiveAfter
}

// seen returns what is seen of the members and of the nodes that would join.
func (w *viewWriter) seen(v *view.View, admitted []Node, accused []Life, now time.Time) (nodes []view.Member) {
	for _, n := range admitted {
		switch n.State {
		case Ready:
			nodes = append(nodes, memberOf(n, view.Ready))
		case Leaving:
			nodes = append(nodes, memberOf(n, view.Leaving))
		case Left:
			nodes = append(nodes, memberOf(n, view.Left))
		case Joining: // it says when it is ready
		}
	}
	for _, m := range v.Members {
		has := slices.ContainsFunc(admitted, func(n Node) bool { return n.ID == m.ID })
		isAccused := slices.Contains(accused, Life(m.Life))
		since, missing := w.missing[m.ID]
		if m.State != view.Gone && (isAccused || !has && missing && now.Sub(since) >= goneGrace && !w.router.Reaches(m.ID)) {
			m.State = view.Gone
			nodes = append(nodes, m)
		}
	}
	return nodes
}

// silent returns the members that this node does not reach.
func (w *viewWriter) silent(v *view.View) []view.Life {
	return slices.DeleteFunc(v.Lives(), w.owners.reaches)
}

func memberOf(n Node, state view.State) view.Member {
	return view.Member{Life: view.Life{ID: n.ID, Incarnation: n.Incarnation}, Address: n.Address, State: state}
}

// swap ends the etcd leases of those accused that next drops, and stores next.
func (w *viewWriter) swap(ctx context.Context, next *view.View, content RegistryContent, accused []Life) error {
	ctx, cancel := context.WithTimeout(ctx, swapTimeout)
	defer cancel()
	routing, err := RoutingView(next)
	if err == nil {
		err = w.evict(ctx, routing, accused)
	}
	if err == nil {
		err = w.store.SwapPlacement(ctx, next, content.ViewRevision)
	}
	if err != nil && !errors.Is(err, ErrViewChanged) && ctx.Err() == nil {
		w.log.Warn("cannot write the next view", "members", len(next.Members), "error", err)
	}
	return err
}

func (w *viewWriter) removeMember(ctx context.Context, id string) (*View, error) {
	content := w.Latest()
	if content.Placement == nil || !content.View.IsMember(id) {
		return nil, fmt.Errorf("%q: %w", id, ErrNoMember)
	}
	i, _ := content.View.Index(id)
	l := content.View.Members[i].life()
	if err := w.registry.Evict(ctx, l); err != nil { // before the view: it must not decide by its lease while its successors decide
		return nil, err
	}
	seen := view.Seen{Nodes: []view.Member{memberOf(Node{ID: id, Incarnation: l.Incarnation, Address: content.View.Members[i].Address}, view.Left)}, Most: w.params.MaxMembers()}
	next, _ := view.Next(content.Placement, seen, w.owners.Reports(), w.owners.plan(content.Placement))
	if next == nil {
		return nil, fmt.Errorf("%q: %w", id, ErrLastMember)
	}
	routing, err := RoutingView(next)
	if err != nil {
		return nil, err
	}
	return routing, w.swap(ctx, next, content, nil)
}
