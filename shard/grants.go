package shard

import (
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of what is kept apart of provisional service, in all.
const (
	maxGrantBytes = 64 << 20
	// grantOverhead is about what a grant takes beside the bytes of a Long.
	grantOverhead = 320
)

// Grant is what was granted of one counter in provisional service.
type Grant struct {
	Key   ring.Key
	Limit algorithms.Limit
	State algorithms.State
	Long  *algorithms.Long // in the place of State if the Limit's algorithm is long, else nil
}

// grant is a Grant that is kept apart.
type grant struct {
	Grant
	bytes int // counted in Shard.grantBytes
}

// grantLocked returns what is kept apart of the counter under key, nil if nothing.
func (p *partition) grantLocked(key ring.Key) *grant {
	if p.copied == nil || len(p.copied.grants) == 0 {
		return nil
	}
	return p.copied.grants[slotKey(key)]
}

// slotKey returns as much of a key as slots know.
func slotKey(key ring.Key) ring.Key { return ring.Key{Hi: key.Hi, Lo: uint64(lowBits(key)) << 48} }

// Underway says which of the grants that Grants has taken away, or that have come with a copy, the holder of partition p
// may not have added yet: what it sends is laid down with them. It takes the place of what was said before.
func (s *Shard) Underway(p uint32, grants []Grant) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(grants) == 0 && x.copied == nil {
		return
	}
	c := x.copyLocked()
	c.under = nil
	for i := range grants {
		c.sendLocked(&grants[i], x.latest)
	}
}

// sendLocked has g be under way.
func (c *copied) sendLocked(g *Grant, now int64) {
	if c.under == nil {
		c.under = make(map[ring.Key]*Grant)
	}
	key := slotKey(g.Key)
	c.under[key] = g.plus(c.under[key], now)
}

// plus returns a grant of all that g and o are, of one counter: it shares nothing with them. o may be nil.
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

// untoldLocked returns what the holder may not know of what was granted of the counter under key: what is kept apart, and what is
// under way. It is nil if there is nothing.
func (p *partition) untoldLocked(key ring.Key) *Grant {
	apart := p.grantLocked(key)
	if p.copied == nil || p.copied.under == nil {
		return apart.grant()
	}
	under := p.copied.under[slotKey(key)]
	switch {
	case under == nil:
		return apart.grant()
	case apart == nil:
		return under
	}
	return apart.plus(under, p.latest)
}

// untold returns all that untoldLocked does.
func (c *copied) untold() (all []*Grant) {
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

// grant returns g without its weight, nil for nil.
func (g *grant) grant() *Grant {
	if g == nil {
		return nil
	}
	return &g.Grant
}

// usageOf returns the usage of a counter of g's in a state.
func (g *Grant) usageOf(state algorithms.State, now int64) usage {
	t := Take{Limit: g.Limit}
	algorithms.StepInto(&t.Decision, &t.Limit, state, now, 0)
	return usageOf(&t)
}

// decideProvisionally decides g although partitions may be closed, or this node have no
// authority: where that is so, on what there is, and keeps apart what it grants. What is given
// back there is no more than was granted there.
func (s *Shard) decideProvisionally(g *Group, now int64) {
	if !s.decideApart(g, now) {
		return
	}
	for i := range g.Takes {
		if t := &g.Takes[i]; t.urgent() {
			s.urge(t.Key)
		}
	}
}

func (s *Shard) decideApart(g *Group, now int64) (urgent bool) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	if slices.ContainsFunc(locked, func(p *partition) bool { return p.closed && p.withheld }) {
		g.moved()
		return false
	}
	lapsed := now >= s.authority.Load()
	var fewCosts [8]int64
	costs := fewCosts[:0]
	for i := range g.Takes {
		t := &g.Takes[i]
		costs = append(costs, t.Cost)
		if p := s.partition(t.Key); t.Cost < 0 && (p.closed || lapsed) {
			t.Cost = -min(-t.Cost, p.grantedLocked(t, now)-givenBack(g.Takes[:i], t.Key))
		}
	}
	urgent = s.decideLocked(g, now)
	for i := range g.Takes {
		t := &g.Takes[i]
		if p := s.partition(t.Key); p.closed || lapsed {
			t.Source = Provisional
			if g.Allowed && !g.Peek && t.Decision.Allowed {
				s.keepApartLocked(p, t, now)
			}
		}
		t.Cost = costs[i]
	}
	return urgent
}

// grantedLocked returns how many tokens of those that are kept apart of t's counter still weigh.
func (p *partition) grantedLocked(t *Take, now int64) int64 {
	g := p.grantLocked(t.Key)
	if g == nil || (g.Long != nil) != t.Limit.Algorithm.Long() {
		return 0
	}
	var d algorithms.Decision
	if g.Long != nil {
		d = g.Long.Step(&t.Limit, now, 0, false)
	} else {
		_, d = algorithms.Step(&t.Limit, g.State, now, 0)
	}
	return max(0, t.Limit.Capacity()-d.Remaining)
}

// givenBack returns how many tokens takes give back to one counter.
func givenBack(takes []Take, key ring.Key) (tokens int64) {
	for i := range takes {
		if t := &takes[i]; t.Key == key && t.Cost < 0 {
			tokens -= t.Cost
		}
	}
	return tokens
}

// keepApartLocked keeps apart what t, which stays, has taken or given back.
func (s *Shard) keepApartLocked(p *partition, t *Take, now int64) {
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
		s.metrics.unkept.Inc()
		return
	}
	g.Limit = t.Limit
	switch {
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

// addGrantLocked begins to keep apart what is granted of t's counter, if there is room. It
// returns nil if there is none.
func (s *Shard) addGrantLocked(p *partition, t *Take) *grant {
	if s.grantBytes.Load() > maxGrantBytes-grantOverhead {
		return nil
	}
	g := &grant{Grant: Grant{Key: t.Key, Limit: t.Limit}}
	if t.Limit.Algorithm.Long() {
		g.Long = new(algorithms.Long)
	}
	c := p.copyLocked()
	if c.grants == nil {
		c.grants = make(map[ring.Key]*grant)
	}
	c.grants[slotKey(t.Key)] = g
	s.weighGrantLocked(g)
	return g
}

// weighGrantLocked counts how many bytes g has now.
func (s *Shard) weighGrantLocked(g *grant) {
	now := grantOverhead
	if g.Long != nil {
		now += g.Long.Bytes()
	}
	s.grantBytes.Add(int64(now - g.bytes))
	g.bytes = now
}

func (s *Shard) dropGrantLocked(p *partition, g *grant) {
	delete(p.copied.grants, slotKey(g.Key))
	s.grantBytes.Add(-int64(g.bytes))
}

// absorbLocked has grants not kept apart any more, nor under way.
func (s *Shard) absorbLocked(p *partition) {
	if p.copied == nil {
		return
	}
	p.copied.under = nil
	for _, g := range p.copied.grants {
		s.dropGrantLocked(p, g)
	}
}

// returnGrantLocked undoes t, which was decided provisionally, in what is kept apart of it.
func (s *Shard) returnGrantLocked(p *partition, t *Take, now int64) {
	g := p.grantLocked(t.Key)
	switch {
	case g == nil || (g.Long != nil) != t.Limit.Algorithm.Long():
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

// Grants takes away some of the grants that partition p keeps apart, to be added where the
// partition is open: most at the most. In what p holds they stay, and they are under way from then on. An open partition keeps none: what it
// holds counts.
func (s *Shard) Grants(p uint32, most int) (grants []Grant) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.closed || x.copied == nil {
		return nil
	}
	for _, g := range x.copied.grants {
		if len(grants) >= most {
			break
		}
		grants = append(grants, g.Grant)
		x.copied.sendLocked(&g.Grant, x.latest)
		s.dropGrantLocked(x, g)
	}
	return grants
}

// KeepsGrants reports whether some partition keeps grants apart.
func (s *Shard) KeepsGrants() bool { return s.grantBytes.Load() > 0 }

// HasGrants reports whether partition p keeps grants apart.
func (s *Shard) HasGrants(p uint32) bool {
	if !s.KeepsGrants() {
		return false
	}
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.closed && x.copied != nil && len(x.copied.grants) > 0
}

// AddGrants counts grants in the partitions that are open, whatever room there is, and whether
// or not the node may decide just now. It returns those whose partition is closed, in order.
func (s *Shard) AddGrants(grants []Grant) (moved []Grant) {
	now := s.now()
	for i := range grants {
		g := &grants[i]
		p := s.partition(g.Key)
		p.mu.Lock()
		if p.closed {
			moved = append(moved, *g)
		} else {
			s.mergeLocked(p, g, p.clockLocked(now))
		}
		p.mu.Unlock()
	}
	return moved
}

// mergeLocked counts g in its counter.
func (s *Shard) mergeLocked(p *partition, g *Grant, now int64) {
	if g.Limit.Algorithm.Long() {
		e := p.long[g.Key]
		if e == nil {
			e = s.addLongLocked(p, g.Key)
		}
		s.mergeLongLocked(p, e, g)
		s.listLongLocked(p, e, ToStandby)
		s.makeRoomForLongLocked(p, []Take{{Key: g.Key}})
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
	s.forgetLocked(p, key) // which knows nothing of this
	s.putLocked(p, e, key, &t, state)
	if p.followed {
		s.tellLocked(p, e, key, &t)
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

// layGrantLocked puts what was granted here where nothing is.
func (s *Shard) layGrantLocked(p *partition, g *Grant) {
	if g.Long != nil {
		s.mergeLongLocked(p, s.addLongLocked(p, g.Key), g)
		return
	}
	if e := newSlot(g.Key, g.State, g.usageOf(g.State, p.latest)); s.makeRoomForLocked(p, &e) {
		s.addLocked(p, e)
	}
}
