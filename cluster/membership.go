package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// Times of membership.
const (
	goneGrace    = time.Second     // how long a key must be missing before its node may be dropped
	recheck      = time.Second     // how often it is looked for members that are accused
	swapTimeout  = 2 * time.Second // how long one write of a view may take
	plannedEvery = time.Second     // the least time between two views that only move what works

	confirmEvery = 50 * time.Millisecond // how often the writer looks for what may follow
	waiveAfter   = 30 * time.Second      // how long it is waited for half of the members to adopt a change
)

// Membership follows the registry: it has every new view adopted, and writes the next one when that falls to this node. What views say is
// the matter of view.Next.
type Membership struct {
	self     string
	params   ring.Params
	registry Registry
	router   *Router
	electors Electorate
	log      *slog.Logger

	changed chan struct{} // has room for one

	mu     sync.Mutex
	latest RegistryContent // guarded by mu

	// Owned by Run.
	missing map[string]time.Time // members without a key, and since when
	nextTry time.Time            // before it nothing is written: the last write failed
	planned time.Time            // when the last view was written that only moved what works
	leftOut int                  // how many nodes it was told last that the ring has no room for
	unsure  uint64               // the view of the last change of members while half is not known to have adopted that; else 0
	since   time.Time            // since when
}

// Electorate is what Membership knows of the members. Owners implements it.
type Electorate interface {
	// Update records what the registry holds, and Adopt makes v the view, unless a newer one is.
	Update(content RegistryContent)
	Adopt(v *view.View)
	// Reports returns the newest reports of all lives that the view names.
	Reports() view.Reports
	// Consider records what the registry holds: of which nodes the members are to find out whether they reach them.
	Consider(v *View, nodes []Node)
	// Admits reports whether enough members of the view that was last considered reach a node that would be a member.
	Admits(n Node) bool
	// Accused returns the members of that view that a majority of its members have not reached for long, each with the ids of those, sorted.
	Accused() map[Life][]string
	// Plan returns where the ring wants the partitions of a view.
	Plan(v *view.View) view.Plan
	// Reached reports whether a life answers this node, or another one that has said so.
	Reached(l Life) bool
	// Unconnected returns the members of which one has said lately that it does not reach the other.
	Unconnected() []view.Pair
	// Farewells returns the lives that have said farewell, of those that the view names, and FarewellHeard what is full when one has.
	Farewells() []view.Life
	FarewellHeard() <-chan struct{}
}

// NewMembership returns the membership of the node self.
func NewMembership(self string, params ring.Params, registry Registry, router *Router, electors Electorate, log *slog.Logger) *Membership {
	return &Membership{
		self: self, params: params, registry: registry, router: router, electors: electors, log: log,
		changed: make(chan struct{}, 1),
		missing: make(map[string]time.Time),
	}
}

// Update tells what the registry holds now. It does not block.
func (m *Membership) Update(content RegistryContent) {
	m.mu.Lock()
	m.latest = content
	m.mu.Unlock()
	fill(m.changed)
}

// Latest returns what Update was given last.
func (m *Membership) Latest() RegistryContent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// Run adopts and writes views until ctx ends.
func (m *Membership) Run(ctx context.Context) {
	again := time.NewTimer(recheck)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		case <-m.electors.FarewellHeard():
		case <-again.C:
		}
		content := m.Latest()
		m.adoptView(content)
		again.Reset(m.writeView(ctx, content))
	}
}

// adoptView has a newer view adopted.
func (m *Membership) adoptView(content RegistryContent) {
	if content.View == nil {
		return
	}
	current := m.router.View()
	m.electors.Update(content)
	m.electors.Adopt(content.View)
	if now := m.router.View(); now != current {
		m.log.Info("new view", "view", now.Number, "members", len(now.Present()), "member", now.IsMember(m.self),
			"joined", lacking(current, now), "left", lacking(now, current))
	}
}

// lacking returns the ids of b's members that a has not, separated by commas.
func lacking(a, b *View) string {
	var ids []string
	for _, m := range b.Present() {
		if !slices.ContainsFunc(a.Present(), func(n Member) bool { return n.ID == m.ID }) {
			ids = append(ids, m.ID)
		}
	}
	return strings.Join(ids, ",")
}

// writeView writes the next view if there is to be one and this node is to write it. It returns when to look again.
func (m *Membership) writeView(ctx context.Context, content RegistryContent) (wait time.Duration) {
	now := time.Now()
	m.noteMissing(content, now) // also while others write: keys come back meanwhile
	m.electors.Consider(content.Routing, content.Nodes)
	accused := m.accused(content)
	content.Nodes = afterFarewells(without(content.Nodes, accused), m.electors.Farewells())
	if len(content.Nodes) == 0 || writer(content.Routing, content.Nodes) != m.self {
		return recheck
	}
	m.tellLeftOut()
	admitted := m.admitted(content)
	if wait := m.nextTry.Sub(now); wait > 0 {
		return wait
	}
	next, urgency := m.next(content, admitted, accused, now)
	switch {
	case next == nil:
		return confirmEvery
	case urgency == view.Planned && now.Sub(m.planned) < plannedEvery:
		return min(confirmEvery, plannedEvery-now.Sub(m.planned))
	}
	if err := m.swap(ctx, next, content, accused); err != nil {
		pause := recheck
		if errors.Is(err, ErrViewChanged) {
			pause = confirmEvery
		}
		m.nextTry = now.Add(pause)
		return pause
	}
	if urgency == view.Planned {
		m.planned = now
	}
	return confirmEvery
}

// writer returns the id of the node that is to write the next view: the first ready member, as members know which nodes are
// reached. If no member is ready, it is the first ready node, and "" if no node is.
func writer(current *View, nodes []Node) string {
	first := ""
	for _, n := range nodes { // sorted by id
		if n.State != Ready {
			continue
		}
		if current != nil {
			if _, isMember := current.Index(n.ID); isMember {
				return n.ID
			}
		}
		if first == "" {
			first = n.ID
		}
	}
	return first
}

// next returns the view that is to be written, nil if there is none.
func (m *Membership) next(content RegistryContent, admitted []Node, accused map[Life][]string, now time.Time) (*view.View, view.Urgency) {
	v := content.View
	if v == nil {
		return m.first(admitted)
	}
	if restored := restoredTerm(admitted); v.Number < restored {
		m.log.Warn("views after the stored one are lost: a node has counters of a later one, so views go on with a higher number",
			"view", v.Number, "restored", restored)
		return view.Renumbered(v, restored+1), view.Urgent
	}
	reports := m.electors.Reports()
	overdue := m.isOverdue(v, reports, now)
	seen := view.Seen{
		Nodes: m.seen(v, admitted, accused, now), Most: m.params.MaxMembers(), Overdue: overdue,
		Silent: m.silent(v), Unconnected: m.electors.Unconnected(), Farewells: m.electors.Farewells(),
	}
	next, urgency := view.Next(v, seen, reports, m.electors.Plan(v))
	if next != nil && overdue {
		m.log.Warn("members change although fewer than half have adopted the last change: those that are missing may still grant, if they live",
			"view", v.Number, "missing", v.Missing(reports), "waited", waiveAfter)
	}
	return next, urgency
}

// first returns the first view, nil if this node is not to write it.
func (m *Membership) first(admitted []Node) (*view.View, view.Urgency) {
	i := slices.IndexFunc(admitted, func(n Node) bool { return n.ID == m.self && n.State == Ready })
	if i < 0 {
		return nil, view.Nothing
	}
	only := &view.View{Members: []view.Member{memberOf(admitted[i], view.Ready)}}
	plan := m.electors.Plan(only)
	if restored := restoredTerm(admitted); restored > 0 {
		return view.Refounded(only.Members[0], restored+1, plan), view.Urgent
	}
	return view.First(only.Members, plan), view.Urgent
}

// restoredTerm returns the highest term of the counters that nodes have restored from snapshots, 0 if none has any.
func restoredTerm(nodes []Node) (term uint64) {
	for _, n := range nodes {
		term = max(term, n.Restored)
	}
	return term
}

// isOverdue reports whether it is not waited for any longer that half of the members adopt the last change.
func (m *Membership) isOverdue(v *view.View, reports view.Reports, now time.Time) bool {
	if v.Confirmed(reports) {
		m.unsure = 0
		return false
	}
	if m.unsure != v.Changed {
		m.unsure, m.since = v.Changed, now
	}
	return now.Sub(m.since) >= waiveAfter
}

// seen returns what is seen of the members and of the nodes that would join.
func (m *Membership) seen(v *view.View, admitted []Node, accused map[Life][]string, now time.Time) (nodes []view.Member) {
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
	for _, member := range v.Members {
		has := slices.ContainsFunc(admitted, func(n Node) bool { return n.ID == member.ID })
		since, missing := m.missing[member.ID]
		isGone := !has && missing && now.Sub(since) >= goneGrace && !m.router.Reaches(member.ID)
		if _, unreached := accused[member.Life]; member.State != view.Gone && (isGone || unreached) {
			member.State = view.Gone
			nodes = append(nodes, member)
		}
	}
	return nodes
}

// silent returns the members that this node does not reach.
func (m *Membership) silent(v *view.View) []view.Life {
	return slices.DeleteFunc(v.Lives(), m.electors.Reached)
}

func memberOf(n Node, state view.State) view.Member {
	return view.Member{Life: view.Life{ID: n.ID, Incarnation: n.Incarnation}, Address: n.Address, State: state}
}

// swap ends the etcd leases of those accused that next drops, and stores next.
func (m *Membership) swap(ctx context.Context, next *view.View, content RegistryContent, accused map[Life][]string) error {
	ctx, cancel := context.WithTimeout(ctx, swapTimeout)
	defer cancel()
	routing, err := RoutingView(next)
	if err == nil {
		err = m.evict(ctx, routing, accused)
	}
	if err == nil {
		if err = m.registry.SwapView(ctx, next, content.ViewRevision); !errors.Is(err, ErrViewChanged) { // after other errors it may be stored
			m.tellDropped(content.Routing, routing, accused)
		}
	}
	if err != nil && !errors.Is(err, ErrViewChanged) && ctx.Err() == nil {
		m.log.Warn("cannot write the next view", "members", len(next.Members), "error", err)
	}
	return err
}

// tellDropped logs which of those accused were members, and are none any more.
func (m *Membership) tellDropped(before, now *View, accused map[Life][]string) {
	for l, by := range accused {
		if before.IsMember(l.ID) && !now.IsMember(l.ID) {
			i, _ := before.Index(l.ID)
			m.log.Warn("a member is dropped because a majority of the members has not reached it for 5 s; it joins again once members reach it",
				"id", l.ID, "incarnation", l.Incarnation, "address", before.Members[i].Address, "not_reached_by", by)
		}
	}
}

// evict ends the etcd leases of those accused that next, which is not known yet, drops: they must not decide by them while their successors decide.
func (m *Membership) evict(ctx context.Context, next *View, accused map[Life][]string) error {
	for l := range accused {
		if next.IsMember(l.ID) {
			continue
		}
		if err := m.registry.Evict(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// Remove has the present life of a node count for ended, on the word of an operator, and takes it out of the view if it is a member. It returns the
// view that it has written, of which the node may still be a member if the members cannot change yet. The error is ErrNoMember if the view knows of no
// node of that id, ErrLastMember if no other would stay, and ErrViewChanged if another view was written meanwhile.
func (m *Membership) Remove(ctx context.Context, id string) (*View, error) {
	content := m.Latest()
	seen := view.Seen{Most: m.params.MaxMembers()}
	for _, l := range content.View.LivesOf(id) {
		seen.Nodes = append(seen.Nodes, view.Member{Life: l, State: view.Left})
	}
	if len(seen.Nodes) == 0 {
		return nil, fmt.Errorf("%q: %w", id, ErrNoMember)
	}
	next, _ := view.Next(content.View, seen, m.electors.Reports(), m.electors.Plan(content.View))
	if next == nil {
		return nil, fmt.Errorf("%q: %w", id, ErrLastMember)
	}
	for _, n := range seen.Nodes { // before the view: none must decide by its etcd lease while its successors decide
		if err := m.registry.Evict(ctx, n.Life); err != nil {
			return nil, err
		}
	}
	routing, err := RoutingView(next)
	if err != nil {
		return nil, err
	}
	return routing, m.swap(ctx, next, content, nil)
}

// Why a node is not removed.
var (
	ErrNoMember   = errors.New("it is no member, and no view waits for it")
	ErrLastMember = errors.New("no other member would stay")
	ErrReached    = errors.New("it is reached, so it lives; drain it instead")
)

// tellLeftOut logs how many nodes the ring has no room for, when that changes.
func (m *Membership) tellLeftOut() {
	n := m.LeftOut()
	if n > m.leftOut {
		m.log.Warn("the ring has no room for all nodes", "members", m.params.MaxMembers(), "left_out", n)
	}
	m.leftOut = n
}

// LeftOut returns how many nodes are ready but no members, because the view has as
// many as the ring has room for.
func (m *Membership) LeftOut() int {
	content := m.Latest()
	if content.Routing == nil || staying(content.Routing.Present()) < m.params.MaxMembers() {
		return 0
	}
	n := 0
	for _, node := range content.Nodes {
		if _, isMember := content.Routing.Index(node.ID); node.State == Ready && !isMember {
			n++
		}
	}
	return n
}

// noteMissing keeps since when each member of the view has had no key.
func (m *Membership) noteMissing(content RegistryContent, now time.Time) {
	if content.Routing == nil {
		return
	}
	hasKey := make(map[string]bool, len(content.Nodes))
	for _, n := range content.Nodes {
		hasKey[n.ID] = true
		delete(m.missing, n.ID)
	}
	for id := range m.missing {
		if _, isMember := content.Routing.Index(id); !isMember {
			delete(m.missing, id)
		}
	}
	for _, member := range content.Routing.Members {
		if _, noted := m.missing[member.ID]; !hasKey[member.ID] && !noted {
			m.missing[member.ID] = now
		}
	}
}

// admitted returns the nodes as they are to be members: without those that too few members have reached yet. A member that was restarted with
// another address, where it is not reached yet, is not ready. Of the nodes before the first view only this one is admitted: it is to reach the
// others then.
func (m *Membership) admitted(content RegistryContent) (nodes []Node) {
	for _, n := range content.Nodes {
		admits := !isCandidate(content.Routing, n) || m.electors.Admits(n)
		switch {
		case content.Routing == nil && n.ID != m.self:
			continue
		case admits:
			nodes = append(nodes, n)
			continue
		case content.Routing.IsMember(n.ID):
			n.State = Joining
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// accused returns the members that are accused in the view that the registry has, each with the ids of those that do not reach it.
func (m *Membership) accused(content RegistryContent) map[Life][]string {
	accused := m.electors.Accused()
	maps.DeleteFunc(accused, func(l Life, _ []string) bool {
		i, member := viewIndex(content.Routing, l.ID)
		return !member || content.Routing.Members[i].Incarnation != l.Incarnation
	})
	return accused
}

// afterFarewells returns the nodes. Those that have said farewell have left, although their keys may say else.
func afterFarewells(nodes []Node, farewells []view.Life) []Node {
	if len(farewells) == 0 {
		return nodes
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		if slices.Contains(farewells, nodes[i].Member().life()) {
			nodes[i].State = Left
		}
	}
	return nodes
}

// without returns the nodes except some lives.
func without(nodes []Node, lives map[Life][]string) (rest []Node) {
	if len(lives) == 0 {
		return nodes
	}
	for _, n := range nodes {
		if _, is := lives[n.Member().life()]; !is {
			rest = append(rest, n)
		}
	}
	return rest
}
