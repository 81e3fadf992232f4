package cluster

import (
	"context"
	"errors"
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
)

// Membership follows the registry: it has every new view adopted, and writes the next one
// when that falls to this node.
type Membership struct {
	self     string
	params   ring.Params
	registry Registry
	router   *Router
	adoption func(*View)
	log      *slog.Logger

	changed chan struct{} // has room for one

	mu     sync.Mutex
	latest Snapshot // guarded by mu

	// Owned by Run.
	missing   map[string]time.Time // members without a key, and since when
	joinSince time.Time            // when a join was first seen that is not in the view; zero if none
	nextDrop  time.Time            // before it nobody is dropped
	nextTry   time.Time            // before it nothing is written: the last write failed
	leftOut   int                  // what was last told of change.leftOut
}

// NewMembership returns the membership of the node self, which has views adopted by calling
// adopt.
func NewMembership(self string, params ring.Params, registry Registry, router *Router, adopt func(*View), log *slog.Logger) *Membership {
	return &Membership{
		self: self, params: params, registry: registry, router: router, adoption: adopt, log: log,
		changed: make(chan struct{}, 1),
		missing: make(map[string]time.Time),
	}
}

// Update tells what the registry holds now. It does not block.
func (m *Membership) Update(s Snapshot) {
	m.mu.Lock()
	m.latest = s
	m.mu.Unlock()
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// Latest returns the last snapshot that Update was given.
func (m *Membership) Latest() Snapshot {
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
		s := m.Latest()
		m.adopt(s.View)
		if wait := m.write(ctx, s); wait > 0 {
			again.Reset(wait)
		}
	}
}

func (m *Membership) adopt(v *View) {
	current := m.router.View()
	if v == nil || (current != nil && v.Number <= current.Number) {
		return
	}
	m.adoption(v)
	_, member := v.Index(m.self)
	m.log.Info("new view", "view", v.Number, "members", len(v.Members), "member", member,
		"joined", lacking(current, v), "left", lacking(v, current))
}

// lacking returns the ids of b's members that a has not, separated by commas.
func lacking(a, b *View) string {
	var ids []string
	for _, m := range b.members() {
		if !slices.ContainsFunc(a.members(), func(n Member) bool { return n.ID == m.ID }) {
			ids = append(ids, m.ID)
		}
	}
	return strings.Join(ids, ",")
}

// write writes the next view if there is to be one and this node is to write it.
// It returns when to look again, 0 for not before something changes.
func (m *Membership) write(ctx context.Context, s Snapshot) (wait time.Duration) {
	now := time.Now()
	m.noteMissing(s, now) // also while others write: keys come back meanwhile
	if len(s.Nodes) == 0 || writer(s.View, s.Nodes) != m.self {
		m.joinSince = time.Time{}
		return 0
	}
	c := nextMembers(s.View, s.Nodes, m.params.MaxMembers(), func(id string) bool {
		return now.Sub(m.missing[id]) >= goneGrace && !now.Before(m.nextDrop) && !m.router.Reaches(id)
	})
	m.tellLeftOut(c.leftOut)
	if wait := max(m.holdBack(s, c, now), m.nextTry.Sub(now)); wait > 0 || len(c.members) == 0 {
		return wait
	}
	v, err := nextView(m.params, s.View, c.members, c.lost)
	if err == nil {
		swap, cancel := context.WithTimeout(ctx, swapTimeout)
		defer cancel()
		err = m.registry.SwapView(swap, v, s.ViewRevision)
	}
	if err != nil && !errors.Is(err, ErrViewChanged) && ctx.Err() == nil {
		m.log.Warn("cannot write the next view", "members", len(c.members), "error", err)
	}
	if err != nil {
		m.nextTry = now.Add(recheck)
		return recheck
	}
	m.joinSince = time.Time{}
	if c.drops {
		m.nextDrop = now.Add(recheck)
	}
	return recheck
}

// Refound writes the view after the one of that number, in which partitions begin a new
// epoch because nobody has their tokens any more. It returns ErrViewChanged if there is
// another view by now.
func (m *Membership) Refound(ctx context.Context, view uint64, partitions []uint32) error {
	s := m.Latest()
	if s.View == nil || s.View.Number != view {
		return ErrViewChanged
	}
	v := s.View.next()
	for _, p := range partitions {
		v.refound(int(p))
	}
	ctx, cancel := context.WithTimeout(ctx, swapTimeout)
	defer cancel()
	return m.registry.SwapView(ctx, v, s.ViewRevision)
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
	s := m.Latest()
	if s.View == nil || staying(s.View.Members) < m.params.MaxMembers() {
		return 0
	}
	n := 0
	for _, node := range s.Nodes {
		if _, isMember := s.View.Index(node.ID); node.State == Ready && !isMember {
			n++
		}
	}
	return n
}

// holdBack returns how long to wait before c is carried out.
func (m *Membership) holdBack(s Snapshot, c change, now time.Time) time.Duration {
	if !c.joins {
		m.joinSince = time.Time{}
	} else if m.joinSince.IsZero() {
		m.joinSince = now
	}
	switch {
	case s.View == nil || c.urgent || c.drops:
		return 0
	case c.joins:
		return m.joinSince.Add(joinBatch).Sub(now)
	case c.suspect:
		return recheck
	}
	return 0
}

// noteMissing keeps since when each member of the view has had no key.
func (m *Membership) noteMissing(s Snapshot, now time.Time) {
	if s.View == nil {
		return
	}
	hasKey := make(map[string]bool, len(s.Nodes))
	for _, n := range s.Nodes {
		hasKey[n.ID] = true
		delete(m.missing, n.ID)
	}
	for id := range m.missing {
		if _, isMember := s.View.Index(id); !isMember {
			delete(m.missing, id)
		}
	}
	for _, member := range s.View.Members {
		if _, noted := m.missing[member.ID]; !hasKey[member.ID] && !noted {
			m.missing[member.ID] = now
		}
	}
}
