package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/ring"
)

// Times of membership.
const (
	joinBatch   = time.Second     // how long a join waits for others to come along
	goneGrace   = time.Second     // how long a key must be missing before its node may be dropped
	recheck     = time.Second     // how often suspects and failed writes are looked at again
	swapTimeout = 2 * time.Second // how long one write of a view may take

	confirmEvery = 50 * time.Millisecond // how often it is looked whether a change of members was adopted while another one is due, or a node that would join was reached
	quickFor     = 10 * time.Second      // how long a node that would join is looked at as often
	waiveAfter   = 30 * time.Second      // how long that is waited for
)

// Membership follows the registry: it has every new view adopted, and writes the next one
// when that falls to this node.
type Membership struct {
	self     string
	params   ring.Params
	registry Registry
	router   *Router
	adoption func(*View)
	electors Electorate
	log      *slog.Logger
	policy   viewPolicy // itself, or a viewWriter

	changed chan struct{} // has room for one

	mu     sync.Mutex
	latest RegistryContent // guarded by mu

	// Owned by Run.
	missing  map[string]time.Time // members without a key, and since when
	waiting  map[Life]time.Time   // nodes that are ready and no members, and since when
	nextDrop time.Time            // before it no node is dropped
	nextTry  time.Time            // before it nothing is written: the last write failed
	leftOut  int                  // what was last told of change.leftOut
	unsure   uint64               // the view of the last change of members while half is not known to have adopted that; else 0
	since    time.Time            // since when
}

// viewPolicy is what views say, and which one is written next.
type viewPolicy interface {
	// adoptView has a newer view adopted.
	adoptView(content RegistryContent)
	// writeView writes the next view if there is to be one and this node is to write it. It returns when to look again, 0 for not before
	// something changes.
	writeView(ctx context.Context, content RegistryContent) (wait time.Duration)
	// removeMember implements Remove.
	removeMember(ctx context.Context, id string) (*View, error)
}

// NewMembership returns the membership of the node self, which has views adopted by calling
// adopt, and learns from electors which of them the members have adopted.
func NewMembership(self string, params ring.Params, registry Registry, router *Router, adopt func(*View), electors Electorate, log *slog.Logger) *Membership {
	m := &Membership{
		self: self, params: params, registry: registry, router: router, adoption: adopt, electors: electors, log: log,
		changed: make(chan struct{}, 1),
		missing: make(map[string]time.Time), waiting: make(map[Life]time.Time),
	}
	m.policy = m
	return m
}

// Update tells what the registry holds now. It does not block.
func (m *Membership) Update(content RegistryContent) {
	m.mu.Lock()
	m.latest = content
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
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
		case <-again.C:
		}
		content := m.Latest()
		m.policy.adoptView(content)
		wait := m.policy.writeView(ctx, content)
		if wait == 0 {
			wait = recheck // members may be accused meanwhile
		}
		again.Reset(wait)
	}
}

func (m *Membership) adoptView(content RegistryContent) {
	v, current := content.View, m.router.View()
	if v == nil || (current != nil && v.Number <= current.Number) {
		return
	}
	m.adoption(v)
	m.logView(current, v)
}

func (m *Membership) logView(current, v *View) {
	m.log.Info("new view", "view", v.Number, "members", len(v.Present()), "member", v.IsMember(m.self),
		"joined", lacking(current, v), "left", lacking(v, current))
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

func (m *Membership) writeView(ctx context.Context, content RegistryContent) (wait time.Duration) {
	now := time.Now()
	m.noteMissing(content, now) // also while others write: keys come back meanwhile
	m.noteWaiting(content, now)
	m.electors.Consider(content.View, content.Nodes)
	accused := m.accused(content)
	content.Nodes = without(content.Nodes, accused)
	confirmed, overdue := m.confirmed(content.View, now)
	if len(content.Nodes) == 0 || writer(content.View, content.Nodes) != m.self {
		return 0
	}
	admitted, unreached := m.admitted(content, now)
	c := nextMembers(content.View, admitted, m.params.MaxMembers(), func(id string) bool {
		isAccused := slices.ContainsFunc(accused, func(l Life) bool { return l.ID == id })
		return !now.Before(m.nextDrop) && (isAccused || now.Sub(m.missing[id]) >= goneGrace && !m.router.Reaches(id))
	})
	m.tellLeftOut(c.leftOut)
	wait = m.holdBack(content, c, now)
	if len(c.members) == 0 && wait == 0 {
		wait = unreached
	}
	switch {
	case confirmed:
	case overdue && len(c.members) == 0:
		c.members = content.View.Members
	case !overdue:
		wait = confirmEvery
		if c = nextMembers(content.View, unchanging(content.View, admitted), 0, func(string) bool { return false }); c.urgent {
			wait = 0
		}
	}
	if wait = max(wait, m.nextTry.Sub(now)); wait > 0 || len(c.members) == 0 {
		return wait
	}
	v, err := nextView(m.params, content.View, c.members, c.lost)
	if err == nil {
		m.account(v, content, overdue)
		swap, cancel := context.WithTimeout(ctx, swapTimeout)
		defer cancel()
		if err = m.evict(swap, v, accused); err == nil {
			err = m.registry.SwapView(swap, v, content.ViewRevision)
		}
	}
	if err != nil && !errors.Is(err, ErrViewChanged) && ctx.Err() == nil {
		m.log.Warn("cannot write the next view", "members", len(c.members), "error", err)
	}
	if err != nil {
		m.nextTry = now.Add(recheck)
		return recheck
	}
	if c.drops {
		m.nextDrop = now.Add(recheck)
	}
	return recheck
}

// confirmed reports whether the members of a view may change, and else whether that half of the members adopts the last change is not waited
// for any longer.
func (m *Membership) confirmed(v *View, now time.Time) (confirmed, overdue bool) {
	if v == nil || m.electors.Confirmed(v) {
		m.unsure = 0
		return true, false
	}
	if m.unsure != v.Changed {
		m.unsure, m.since = v.Changed, now
	}
	return false, now.Sub(m.since) >= waiveAfter
}

// unchanging returns nodes as they would be if none of them changed who is a member: without those that would join, and those that have left
// are still leaving.
func unchanging(v *View, nodes []Node) (rest []Node) {
	for _, n := range nodes {
		if _, member := v.Index(n.ID); !member {
			continue
		}
		if n.State == Left {
			n.State = Leaving
		}
		rest = append(rest, n)
	}
	return rest
}

// account has the next view, which follows that of content, name the nodes that have ended and those that were given up.
func (m *Membership) account(v *View, content RegistryContent, overdue bool) {
	if content.View == nil {
		return
	}
	var left []Life
	for _, n := range content.Nodes {
		if n.State == Left {
			left = append(left, Life{n.ID, n.Incarnation})
		}
	}
	v.GivenUp = slices.DeleteFunc(v.GivenUp, func(l Life) bool { return m.electors.Returned(content.View, l) })
	if overdue {
		missing := m.electors.Missing(content.View)
		v.waive(content.View, missing)
		m.log.Warn("members change although fewer than half have adopted the last change: those that are missing may still grant, if they live",
			"view", content.View.Number, "missing", missing, "waited", waiveAfter)
	}
	v.end(left)
}

// Remove has the present life of a node count for ended, on the word of an operator, and takes it out of the view if it is a member. It returns the
// view that it has written, of which the node may still be a member if the members cannot change yet. The error is ErrNoMember if the view knows of no
// node of that id, ErrLastMember if no other would stay, and ErrViewChanged if another view was written meanwhile.
func (m *Membership) Remove(ctx context.Context, id string) (*View, error) {
	return m.policy.removeMember(ctx, id)
}

func (m *Membership) removeMember(ctx context.Context, id string) (*View, error) {
	content := m.Latest()
	if content.View == nil || !content.View.names(id) {
		return nil, fmt.Errorf("%q: %w", id, ErrNoMember)
	}
	v := content.View.next()
	if i, member := content.View.Index(id); member {
		rest := slices.Delete(slices.Clone(content.View.Members), i, i+1)
		if staying(rest) == 0 {
			return nil, fmt.Errorf("%q: %w", id, ErrLastMember)
		}
		l := content.View.Members[i].life()
		if err := m.registry.Evict(ctx, l); err != nil { // before the view: it must not decide by its lease while its successors decide
			return nil, err
		}
		marked := content.View.As(content.View.Number)
		marked.end([]Life{l})
		if m.electors.Confirmed(marked) {
			var err error
			if v, err = nextView(m.params, marked, rest, []string{id}); err != nil {
				return nil, err
			}
		} else {
			v.end([]Life{l})
		}
	}
	for _, l := range slices.Concat(v.Before, v.GivenUp) {
		if l.ID == id {
			v.end([]Life{l})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, swapTimeout)
	defer cancel()
	return v, m.registry.SwapView(ctx, v, content.ViewRevision)
}

// Why a node is not removed.
var (
	ErrNoMember   = errors.New("it is no member, and no view waits for it")
	ErrLastMember = errors.New("no other member would stay")
	ErrReached    = errors.New("it is reached, so it lives; drain it instead")
)

// Refound writes the view after the one of that number, in which partitions begin a new epoch because no node
// decides for them any more. It returns ErrViewChanged if there is another view by now.
func (m *Membership) Refound(ctx context.Context, view uint64, partitions []uint32) error {
	content := m.Latest()
	if content.View == nil || content.View.Number != view {
		return ErrViewChanged
	}
	v := content.View.next()
	for _, p := range partitions {
		v.refound(int(p))
	}
	ctx, cancel := context.WithTimeout(ctx, swapTimeout)
	defer cancel()
	return m.registry.SwapView(ctx, v, content.ViewRevision)
}

// tellLeftOut logs how many nodes the ring has no room for, when that changes.
func (m *Membership) tellLeftOut(n int) {
	if n > m.leftOut {
		m.log.Warn("the ring has no room for all nodes", "members", m.params.MaxMembers(), "left_out", n)
	}
	m.leftOut = n
}

// LeftOut returns how many nodes are ready but no members, because the view has as
// many as the ring has room for.
func (m *Membership) LeftOut() int {
	content := m.Latest()
	if content.View == nil || staying(content.View.Present()) < m.params.MaxMembers() {
		return 0
	}
	n := 0
	for _, node := range content.Nodes {
		if _, isMember := content.View.Index(node.ID); node.State == Ready && !isMember {
			n++
		}
	}
	return n
}

// holdBack returns how long to wait before c is carried out.
func (m *Membership) holdBack(content RegistryContent, c change, now time.Time) time.Duration {
	switch {
	case content.View == nil || c.urgent || c.drops:
		return 0
	case c.joins:
		first := now
		for _, joins := range c.members {
			if since, waits := m.waiting[joins.life()]; waits && since.Before(first) {
				first = since
			}
		}
		return first.Add(joinBatch).Sub(now)
	case c.suspect:
		return recheck
	}
	return 0
}

// noteMissing keeps since when each member of the view has had no key.
func (m *Membership) noteMissing(content RegistryContent, now time.Time) {
	if content.View == nil {
		return
	}
	hasKey := make(map[string]bool, len(content.Nodes))
	for _, n := range content.Nodes {
		hasKey[n.ID] = true
		delete(m.missing, n.ID)
	}
	for id := range m.missing {
		if _, isMember := content.View.Index(id); !isMember {
			delete(m.missing, id)
		}
	}
	for _, member := range content.View.Members {
		if _, noted := m.missing[member.ID]; !hasKey[member.ID] && !noted {
			m.missing[member.ID] = now
		}
	}
}

// noteWaiting keeps since when each node that is ready has been no member of the view.
func (m *Membership) noteWaiting(content RegistryContent, now time.Time) {
	before := m.waiting
	m.waiting = make(map[Life]time.Time)
	for _, n := range content.Nodes {
		if !isCandidate(content.View, n) {
			continue
		}
		l := n.Member().life()
		m.waiting[l] = now
		if since, noted := before[l]; noted {
			m.waiting[l] = since
		}
	}
}

// admitted returns the nodes as they are to be members: without those that too few members have reached yet. A member that was restarted with
// another address, where it is not reached yet, is not ready. Of the nodes before the first view only this one is admitted: it is to reach the
// others then. again says how soon to look at those that were not admitted, 0 if there are none.
func (m *Membership) admitted(content RegistryContent, now time.Time) (nodes []Node, again time.Duration) {
	for _, n := range content.Nodes {
		admits := !isCandidate(content.View, n) || m.electors.Admits(n)
		switch {
		case content.View == nil && n.ID != m.self:
			continue
		case admits:
			nodes = append(nodes, n)
			continue
		case content.View.IsMember(n.ID):
			n.State = Joining
			nodes = append(nodes, n)
		}
		if again == 0 {
			again = recheck
		}
		if since, waits := m.waiting[n.Member().life()]; !waits || now.Sub(since) < quickFor {
			again = confirmEvery
		}
	}
	return nodes, again
}

// accused returns the lives of members that are accused in the view that the registry has.
func (m *Membership) accused(content RegistryContent) (accused []Life) {
	for _, l := range m.electors.Accused() {
		if i, member := viewIndex(content.View, l.ID); member && content.View.Members[i].Incarnation == l.Incarnation {
			accused = append(accused, l)
		}
	}
	return accused
}

func viewIndex(v *View, id string) (int, bool) {
	if v == nil {
		return 0, false
	}
	return v.Index(id)
}

// without returns the nodes except some lives.
func without(nodes []Node, lives []Life) (rest []Node) {
	if len(lives) == 0 {
		return nodes
	}
	for _, n := range nodes {
		if !slices.Contains(lives, n.Member().life()) {
			rest = append(rest, n)
		}
	}
	return rest
}

// evict ends the etcd leases of those accused that v, which is not known yet, drops: they must not decide by them while their successors decide.
func (m *Membership) evict(ctx context.Context, v *View, accused []Life) error {
	for _, l := range accused {
		if v.IsMember(l.ID) {
			continue
		}
		if err := m.registry.Evict(ctx, l); err != nil {
			return err
		}
		m.log.Warn("a member is dropped because a majority of the members has not reached it for 5 s; it joins again once members reach it",
			"id", l.ID, "incarnation", l.Incarnation)
	}
	return nil
}
