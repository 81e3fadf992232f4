package shard

import (
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of provisional grants, in all partitions.
const (
	maxGrantBytes = 64 << 20
	// grantOverhead is about the memory of a grant without the bytes of a Long.
	grantOverhead = 320
)

// Grant is the tokens granted provisionally of one counter.
type Grant struct {
	Key   ring.Key
	Limit algorithms.Limit
	State algorithms.State
	Long  *algorithms.Long // replaces State if the Limit's algorithm is long, else nil
}

// unsentGrant is a Grant that was not sent yet.
type unsentGrant struct {
	Grant
	bytes int // counted in Shard.grantBytes
}

// grantLocked returns the provisional grant of the counter under key, nil if there is none.
func (p *partition) grantLocked(key ring.Key) *unsentGrant {
	if p.copied == nil || len(p.copied.grants) == 0 {
		return nil
	}
	return p.copied.grants[slotKey(key)]
}

// slotKey returns the part of a key that slots store.
func slotKey(key ring.Key) ring.Key { return ring.Key{Hi: key.Hi, Lo: uint64(lowBits(key)) << 48} }

// Underway sets the grants that the owner of partition p may not have added yet: those taken by TakeGrants,
// or copied with the partition. Records of the owner are merged with them. It replaces the grants of the
// call before.
func (s *Shard) Underway(p uint32, grants []Grant) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(grants) == 0 && x.copied == nil {
		return
	}
	c := x.ensureCopiedLocked()
	c.under = nil
	for i := range grants {
		c.markUnderwayLocked(&grants[i], x.latest)
	}
}

// markUnderwayLocked adds g to the grants under way.
func (c *copied) markUnderwayLocked(g *Grant, now int64) {
	if c.under == nil {
		c.under = make(map[ring.Key]*Grant)
	}
	key := slotKey(g.Key)
	c.under[key] = g.plus(c.under[key], now)
}

// plus returns the sum of g and o, grants of one counter. It shares no memory with them. o may be nil.
func (g *Grant) plus(o *Grant, now int64) *Grant {
	both := &Grant{Key: g.Key, Limit: g.Limit, State: g.State}
	same := o != nil && (o.Long != nil) == (g.Long != nil)
	switch {
	case g.Long != nil:
		both.Long = g.Long.Clone()
		if same {
			both.Long.Merge(&g.Limit, o.Long.Clone(), now)
		}
	case same:
		both.State = algorithms.Merge(&g.Limit, g.State, o.State, now)
	}
	return both
}

// underwayLocked returns the grant under way of the counter under key, nil if there is none.
func (p *partition) underwayLocked(key ring.Key) *Grant {
	if p.copied == nil || len(p.copied.under) == 0 {
		return nil
	}
	return p.copied.under[slotKey(key)]
}

// unacknowledgedLocked returns the provisional grants of the counter under key that the owner may not know:
// those not sent, and those under way. It returns nil if there are none.
func (p *partition) unacknowledgedLocked(key ring.Key) *Grant {
	unsent := p.grantLocked(key)
	under := p.underwayLocked(key)
	switch {
	case under == nil:
		return unsent.withoutWeight()
	case unsent == nil:
		return under
	}
	return unsent.plus(under, p.latest)
}

// unacknowledged returns the results of unacknowledgedLocked for all keys.
func (c *copied) unacknowledged() (all []*Grant) {
	for key, g := range c.grants {
		if under := c.under[key]; under != nil {
			all = append(all, g.plus(under, 0))
		} else {
			all = append(all, &g.Grant)
		}
	}
	for key, g := range c.under {
		if c.grants[key] == nil {
			all = append(all, g)
		}
	}
	return all
}

// withoutWeight returns the Grant of g, nil for nil.
func (g *unsentGrant) withoutWeight() *Grant {
	if g == nil {
		return nil
	}
	return &g.Grant
}

// usageOf returns the usage of the counter of g in a state.
func (g *Grant) usageOf(state algorithms.State, now int64) usage {
	t := Take{Limit: g.Limit}
	algorithms.StepInto(&t.Decision, &t.Limit, state, now, 0)
	return usageOf(&t)
}

// decideProvisionally decides g. Partitions that are sealed, or without a valid decision lease, answer from
// their copies and record what they grant. Give-backs there are limited to what was granted there.
func (s *Shard) decideProvisionally(g *Group, now int64) {
	if !s.decideFromCopies(g, now) {
		return
	}
	for i := range g.Takes {
		if t := &g.Takes[i]; t.urgent() {
			s.urge(t.Key)
		}
	}
}

func (s *Shard) decideFromCopies(g *Group, now int64) (urgent bool) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	lapsed := now >= s.leaseUntil.Load()
	if slices.ContainsFunc(locked, func(p *partition) bool { return p.withheld && (p.sealed || lapsed) }) {
		g.redirect()
		return false
	}
	var fewCosts [8]int64
	costs := fewCosts[:0]
	for i := range g.Takes {
		t := &g.Takes[i]
		costs = append(costs, t.Cost)
		if p := s.partition(t.Key); t.Cost < 0 && (p.sealed || lapsed) {
			t.Cost = -min(-t.Cost, p.grantedLocked(t, now)-givenBack(g.Takes[:i], t.Key))
		}
	}
	urgent = s.decideLocked(g, now)
	for i := range g.Takes {
		t := &g.Takes[i]
		if p := s.partition(t.Key); p.sealed || lapsed {
			t.Source = Provisional
			t.Contended = false // nodes tell only owners which takes stay
			if g.Allowed && !g.Peek && t.Decision.Allowed {
				s.recordGrantLocked(p, t, now)
			}
		}
		t.Cost = costs[i]
	}
	return urgent
}

// grantedLocked returns how many provisionally granted tokens of t's counter are still counted.
func (p *partition) grantedLocked(t *Take, now int64) int64 {
	g := p.grantLocked(t.Key)
	if g == nil || (g.Long != nil) != t.Limit.Algorithm.Long() {
		return 0
	}
	var d algorithms.Decision
	limit := t.Limit
	limit.MaxDelay = 0 // count all free tokens, not only those available within MaxDelay
	if g.Long != nil {
		d = g.Long.Step(&limit, now, 0, false)
	} else {
		_, d = algorithms.Step(&limit, g.State, now, 0)
	}
	return max(0, limit.Capacity()-d.Remaining)
}

// givenBack returns the number of tokens that takes give back to the counter of key.
func givenBack(takes []Take, key ring.Key) (tokens int64) {
	for i := range takes {
		if t := &takes[i]; t.Key == key && t.Cost < 0 {
			tokens -= t.Cost
		}
	}
	return tokens
}

// recordGrantLocked records what t, which stays, has taken or given back.
func (s *Shard) recordGrantLocked(p *partition, t *Take, now int64) {
	if t.Cost == 0 {
		return
	}
	g := p.grantLocked(t.Key)
	if t.Cost > 0 {
		s.metrics.granted.Inc()
		if g == nil {
			g = s.addGrantLocked(p, t)
		}
	}
	if g == nil || (g.Long != nil) != t.Limit.Algorithm.Long() || t.Cost > 0 && s.grantBytes.Load() > maxGrantBytes {
		s.metrics.dropped.Inc()
		return
	}
	g.Limit = t.Limit
	switch {
	case g.Long == nil && t.Cost > 0 && g.Limit.Capacity()-t.Decision.Remaining-t.Cost > 0: // the counter was in use before
		g.State = algorithms.ChargeInUse(&g.Limit, g.State, now, t.Decision.At, t.Cost)
	case g.Long == nil && t.Cost > 0:
		g.State = algorithms.Charge(&g.Limit, g.State, now, t.Decision.At, t.Cost)
	case g.Long == nil:
		g.State, _ = algorithms.Step(&g.Limit, g.State, now, t.Cost)
	case t.Cost > 0:
		g.Long.Charge(&g.Limit, now, t.Decision.At, t.Cost)
	default:
		g.Long.Step(&g.Limit, now, t.Cost, true)
	}
	s.weighGrantLocked(g)
}

// addGrantLocked starts a provisional grant of t's counter. It returns nil if there is no room.
func (s *Shard) addGrantLocked(p *partition, t *Take) *unsentGrant {
	if s.grantBytes.Load() > maxGrantBytes-grantOverhead {
		return nil
	}
	g := &unsentGrant{Grant: Grant{Key: t.Key, Limit: t.Limit}}
	if t.Limit.Algorithm.Long() {
		g.Long = new(algorithms.Long)
	}
	c := p.ensureCopiedLocked()
	if c.grants == nil {
		c.grants = make(map[ring.Key]*unsentGrant)
	}
	c.grants[slotKey(t.Key)] = g
	s.weighGrantLocked(g)
	return g
}

// weighGrantLocked updates the size of g.
func (s *Shard) weighGrantLocked(g *unsentGrant) {
	now := grantOverhead
	if g.Long != nil {
		now += g.Long.Bytes()
	}
	s.grantBytes.Add(int64(now - g.bytes))
	g.bytes = now
}

func (s *Shard) dropGrantLocked(p *partition, g *unsentGrant) {
	delete(p.copied.grants, slotKey(g.Key))
	s.grantBytes.Add(-int64(g.bytes))
}

// absorbLocked makes all provisional grants part of the counters, also those under way.
func (s *Shard) absorbLocked(p *partition) {
	if p.copied == nil {
		return
	}
	p.copied.under = nil
	for _, g := range p.copied.grants {
		s.dropGrantLocked(p, g)
	}
}

// returnGrantLocked undoes t, which was decided provisionally, in its provisional grant. It returns false
// if that grant was sent to the owner already. Then t is undone in what is under way, which records of the owner
// are merged with.
func (p *partition) returnGrantLocked(t *Take, now int64) bool {
	g := p.grantLocked(t.Key)
	if g == nil || t.Cost > 0 && p.grantedLocked(t, now) < t.Cost && !t.Limit.Algorithm.Drains() {
		if under := p.underwayLocked(t.Key); under != nil {
			under.undo(t, now)
		}
		return false
	}
	g.undo(t, now)
	return true
}

// undo undoes t in g.
func (g *Grant) undo(t *Take, now int64) {
	switch {
	case (g.Long != nil) != t.Limit.Algorithm.Long():
	case g.Long != nil && t.Cost >= 0:
		g.Long.Return(&t.Limit, now, t.Decision.At, t.Cost)
	case g.Long != nil:
		g.Long.Charge(&t.Limit, now, now, -t.Cost)
	case t.Cost >= 0:
		g.State = algorithms.Return(&t.Limit, g.State, now, t.Decision.At, t.Cost)
	default:
		g.State = algorithms.Charge(&t.Limit, g.State, now, now, -t.Cost)
	}
}

// TakeGrants removes and returns at most most provisional grants of partition p, to be added by the owner.
// They stay counted in p's copy, and are under way from then on. An unsealed partition has none: its grants
// are part of its counters.
func (s *Shard) TakeGrants(p uint32, most int) (grants []Grant) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.sealed || x.copied == nil {
		return nil
	}
	for _, g := range x.copied.grants {
		if len(grants) >= most {
			break
		}
		grants = append(grants, g.Grant)
		x.copied.markUnderwayLocked(&g.Grant, x.latest)
		s.dropGrantLocked(x, g)
	}
	return grants
}

// HasAnyGrants reports whether any partition has provisional grants.
func (s *Shard) HasAnyGrants() bool { return s.grantBytes.Load() > 0 }

// HasGrants reports whether partition p has provisional grants.
func (s *Shard) HasGrants(p uint32) bool {
	if !s.HasAnyGrants() {
		return false
	}
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sealed && x.copied != nil && len(x.copied.grants) > 0
}

// AddGrants counts grants in unsealed partitions, even above their limits and without a valid decision
// lease. It returns those of sealed partitions, in order.
func (s *Shard) AddGrants(grants []Grant) (moved []Grant) {
	now := s.now()
	for i := range grants {
		g := &grants[i]
		p := s.partition(g.Key)
		p.mu.Lock()
		if p.sealed {
			moved = append(moved, *g)
		} else {
			s.mergeLocked(p, g, p.clockLocked(now))
		}
		p.mu.Unlock()
	}
	return moved
}

// AddGrantsToCopy counts grants of other nodes in the copy of partition p. Records of the owner replace them, unless they are under way. It does nothing if p is
// unsealed.
func (s *Shard) AddGrantsToCopy(p uint32, grants []Grant) {
	x, now := &s.partitions[p], s.now()
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range grants {
		if x.sealed {
			s.mergeLocked(x, &grants[i], x.clockLocked(now))
		}
	}
}

// mergeLocked counts g in its counter.
func (s *Shard) mergeLocked(p *partition, g *Grant, now int64) {
	if g.Limit.Algorithm.Long() {
		e := p.long[g.Key]
		if e == nil {
			e = s.addLongLocked(p, g.Key)
		}
		s.mergeLongLocked(p, e, g)
		s.listLongLocked(p, e, false)
		s.makeRoomForLongLocked(p, g.Key, []Take{{Key: g.Key}})
		return
	}
	t := Take{Key: g.Key, Limit: g.Limit}
	key, e := t.Key, p.table.find(s.arena, t.Key)
	if e == nil && p.table.full() {
		var victim cursor
		var full bool
		key, victim, full = s.keyLocked(p, &t, nil)
		e = p.table.find(s.arena, key)
		if full {
			s.evictLocked(p, victim)
		}
	}
	state := algorithms.Merge(&t.Limit, s.stateLocked(p, e, &t), g.State, now)
	algorithms.StepInto(&t.Decision, &t.Limit, state, now, 0)
	s.forgetLocked(p, key) // the history does not include this change
	s.advanceLeasesLocked(p, key, now)
	s.putLocked(p, e, key, &t, state)
	if p.followed {
		s.notifyFollowersLocked(p, e, key, &t)
	}
}

// mergeLongLocked counts g in e.
func (s *Shard) mergeLongLocked(p *partition, e *longEntry, g *Grant) {
	e.counter.Merge(&g.Limit, g.Long, p.latest)
	t := Take{Limit: g.Limit}
	t.Decision = e.counter.Step(&g.Limit, p.latest, 0, false)
	e.usage = usageOf(&t)
	s.weighLongLocked(e)
}

// layGrantLocked makes a counter of g where there is none.
func (s *Shard) layGrantLocked(p *partition, g *Grant) {
	if g.Long != nil {
		s.mergeLongLocked(p, s.addLongLocked(p, g.Key), g)
		return
	}
	if e := newSlot(g.Key, g.State, g.usageOf(g.State, p.latest)); s.makeRoomForLocked(p, &e) {
		s.addLocked(p, e)
	}
}
