package cluster

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/shard"
)

// Times and bounds of Ownership.
const (
	acquireEvery    = 50 * time.Millisecond  // how often this node looks what it should hold
	heartbeatEvery  = 500 * time.Millisecond // to each member
	replicateEvery  = 100 * time.Millisecond // to each standby
	urgentEvery     = 2 * time.Millisecond   // between replications that a counter has asked for
	callTimeout     = 500 * time.Millisecond // of one call to a peer, except Pull
	strangerTimeout = 100 * time.Millisecond // of asking a peer what it has that does not answer checks either
	pullTimeout     = 5 * time.Second        // of a partition that is fetched
	recoverPatience = time.Second            // for members to say which copies they have, once it is safe to create a tenure again
	fenceSlack      = 50 * time.Millisecond  // beyond decisionLeaseTime, for clocks that run apart
	pullsAtOnce     = 4                      // partitions
	fetchEvery      = 5 * time.Millisecond   // the least pause before one more of them; longer if the last one took long
	fetchRest       = 2                      // times as long as that
	fetchEveryMost  = 12 * time.Millisecond  // the most, times the members that fetch from the same one
	fetchPauseMost  = 100 * time.Millisecond // the most at all: a node that pauses does not look for news
	fetchWithin     = 2 * time.Second        // all pauses of what is fetched from one member
	recordBytes     = 32 << 10               // of one partition in one message, about
	messageBytes    = 128 << 10              // of one message, about
	keepCopy        = 30 * time.Second       // of a partition that is no business of this node any more
	maxGrantBatch   = 500                    // grants of one message
	grantBytes      = 64 << 10               // of one message, before the last of them, which may take a hundred
	lookEvery       = suspendAfter / 4       // at the clock
	gatherTime      = 500 * time.Millisecond // in which the standbys of a suspended node are to say what they have granted
	partingPatience = time.Second            // to tell the standby what it does not know yet of a tenure that is gone
	returnWithin    = 500 * time.Millisecond // the time in which a suspended node is expected to decide again
)

// Ownership keeps the tenures of partitions: it fetches those that the view gives to this node,
// hands out those that it gives to others, keeps the standbys' copies current, and
// creates again what was lost with its owner. It unseals and seals the shard's partitions
// accordingly. What may happen to a tenure is decided in tenure.go, and until when this node
// may decide in decisionlease.go.
type Ownership struct {
	OwnershipConfig
	inquiries
	origin  uint64 // the first incarnation, under which batches of grants are numbered
	metrics ownershipMetrics

	kick     chan struct{}                 // full when there may be something to acquire
	standbys []atomic.Pointer[otherMember] // by partition, for those that do not lock
	sought   atomic.Uint64                 // the number of the view of which this node has looked last who else has what

	mu          sync.Mutex
	ownParty    party // this node
	view        *View
	over        bool // whether this node has ceased to hold anything, and is about to end
	solo        bool // whether tenures of the view were made by this node although it names another incarnation
	parts       []partState
	peers       map[string]*otherMember // by id
	adopted     adoptions               // by those that the view names
	changed     time.Time               // when the last change of members was adopted
	departed    bool                    // this node has left: it confirms no decision lease any more
	processes   map[string]uint64       // by id, the incarnation that has answered last
	unconfirmed map[uint64]time.Time    // of epochs in which this node creates tenures again: since when all owners from before them have ended except for their last decision lease, zero if they have not
	added       map[grantor]delivery    // by member of the view and partition
	batch       uint64                  // the last one of this node
	outbox      map[uint32]outgoing     // grants that were not acknowledged yet, by partition
	cohort      *errgroup.Group         // the goroutines of all peers
	ctx         context.Context         // ends with Run
	lease       decisionLease
	gathering   bool          // a goroutine asks the standbys what they have granted
	resumed     chan struct{} // closed when this node may decide again, and then another one
	admission   *admission
}

// OwnershipConfig says what Ownership works with. Every field is required.
type OwnershipConfig struct {
	// Self is this node. The incarnation 0 is that of a node that has started without its
	// registry: see Become.
	Self Member
	// Greeter says who this node is. What comes from another cluster, or is meant for another node, is refused.
	Greeter *Greeter
	// Shard has the counters, Router and DenialLeases what is said about them.
	Shard        *shard.Shard
	Router       *Router
	DenialLeases *DenialLeases
	// Refound writes a view that begins a new epoch for partitions that are lost, after the
	// view of that number. See Membership.Refound.
	Refound func(ctx context.Context, view uint64, partitions []uint32) error
	// Adopted is told of every view that is adopted. It must not block.
	Adopted func(*View)
	// State returns what this node is doing; nil for Ready. It is called with no lock held.
	State func() State
	// Load returns what heartbeats report of this node; nil for nothing. It is called with no lock held, and must return at once.
	Load func() Load
	// Renewed returns when the last renewal of the node's lease was sent that succeeded. It
	// is called with no lock held.
	Renewed func() time.Time
	// Dial connects to the gRPC port of a node.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Top has the keys that clients have asked this node for most; nil if it keeps no lists.
	Top *topkeys.Recorder
	// Events returns what has happened at this node, the newest first; nil for nothing. It is called with no lock held.
	Events func(ctx context.Context) []Event
	// Decisions returns the lines of this node's decision log since an instant. The error has a status code and says what the log
	// lacks. Nil is no log. It is called with no lock held.
	Decisions func(since time.Time) (io.ReadCloser, error)

	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// partState is what this node has to do with one partition.
type partState struct {
	tenure    tenure
	copy      copyVersion // of what the shard has while it has no tenure
	sequence  uint64      // of the last replica that was sent of the tenure
	standby   string      // the member that they are sent to; "" if none
	parting   time.Time   // since when the tenure is gone whose last changes the standby has yet to be sent; zero if it has them
	begun     bool        // whether the standby has been sent something
	whole     bool        // and whether that was everything
	followed  uint64      // how often it was begun to note what has changed for a standby, or ended
	from      string      // the member that is believed to hold the tenure, if it is to come here; or ""
	fedBy     string      // the member that has sent this node what it has last as the standby; or ""
	fetch     string      // the member that has sealed the tenure for this node, although it is not the owner; or ""
	pulling   bool        // this node is fetching it
	restarted bool        // this node has had it before it was restarted
	copyAt    party       // the member that is believed to have a copy if the standby has none yet; or zero
	last      bool        // no member that answers has a whole copy, as far as this node has asked since the view
	fresh     bool        // no member is known to have a better copy than this node; else it may be one from long ago
	over      bool        // this node has ceased to hold it, and is about to end
	ended     bool        // and has held it until then
	elsewhere bool        // a member of the view has it, or as good a copy, which this node leaves it to
	moving    bool        // another node is fetching it
	mover     string      // which that is; guarded as moving
	posting   bool        // the owner is being told what this node has granted
	receipt   receipt     // what was installed and not yet confirmed
	idle      time.Time
}

// receipt is a Confirm that is due.
type receipt struct {
	from party
	term Term // 0 for none
}

// NewOwnership returns the Ownership of a node that holds nothing: it seals all partitions
// of the shard.
func NewOwnership(c OwnershipConfig, partitions int) *Ownership {
	k := &Ownership{
		OwnershipConfig: c,
		ownParty:        party{c.Self.ID, c.Self.Incarnation},
		kick:            make(chan struct{}, 1),
		standbys:        make([]atomic.Pointer[otherMember], partitions),
		parts:           make([]partState, partitions),
		peers:           make(map[string]*otherMember),
		processes:       make(map[string]uint64),
		adopted:         make(adoptions),
		unconfirmed:     make(map[uint64]time.Time),
		added:           make(map[grantor]delivery),
		outbox:          make(map[uint32]outgoing),
		cohort:          new(errgroup.Group),
		resumed:         make(chan struct{}),
	}
	if k.State == nil {
		k.State = func() State { return Ready }
	}
	if k.Load == nil {
		k.Load = func() Load { return Load{} }
	}
	if c.Self.Incarnation == 0 {
		k.ownParty.incarnation = uncounted | rand.Uint64()
	}
	k.inquiries = inquiries{
		self: c.Self.ID, greeter: c.Greeter, router: c.Router, members: k.others, caller: k.caller, status: k.HandoverStatus, load: k.Load,
		top: c.Top, events: c.Events, log: c.Decisions, sendsDecisions: make(chan struct{}, decisionStreams),
	}
	k.admission = newAdmission(c.Self.ID, c.Greeter, c.Dial, c.Router.Reaches, c.Renewed, c.Logger)
	k.origin = k.ownParty.incarnation
	k.Greeter.become(k.ownParty.incarnation)
	k.metrics = newOwnershipMetrics(c.Metrics, k)
	for p := range k.parts {
		k.Shard.Seal(uint32(p))
	}
	k.Shard.OnUrgent(k.urgent)
	k.Router.locator = k
	k.DenialLeases.strictAcks = newStrictAcks(k)
	return k
}

// uncounted marks the incarnations of nodes that no registry has counted yet. No view has such a
// one, and no two of them are the same.
const uncounted = 1 << 63

// Become gives a node that has started without its registry the incarnation that this has
// counted since.
func (k *Ownership) Become(incarnation uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ownParty.incarnation = incarnation
	k.Greeter.become(incarnation)
}

// alone reports whether the only member of the view is this node, as it was before it has started
// without its registry. Then no other node can hold a tenure, and it is for this node to
// make them; but they lapse with the view, which may be an old one.
func (k *Ownership) alone() bool {
	return k.ownParty.incarnation >= uncounted && len(k.view.Members) == 1 && k.view.Members[0].ID == k.Self.ID
}

// claim returns what the view says about a partition.
func (k *Ownership) claim(p uint32) claim {
	c := k.view.claim(p)
	if k.alone() {
		c.epoch, c.owner = c.view, k.ownParty
	}
	return c
}

// Adopt makes v the view, unless a newer one is: it fences what v says is over, routes by
// it, and begins to fetch what it gives to this node.
func (k *Ownership) Adopt(v *View) {
	renewed := k.Renewed()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view != nil && v.Number <= k.view.Number || len(v.Epochs) != len(k.parts) {
		return
	}
	old := k.view
	k.lease.look(time.Now())
	k.noteChange(old, v)
	k.view = v
	k.adopted.note(Life{k.ownParty.id, k.ownParty.incarnation}, v.Number)
	k.adopted.keep(v)
	k.meet(v)
	lapsed := k.solo
	k.solo = k.alone()
	for p := range k.parts {
		k.adoptPart(uint32(p), old, lapsed)
	}
	for e := range k.unconfirmed {
		if !k.hasToCreate(e) {
			delete(k.unconfirmed, e)
		}
	}
	maps.DeleteFunc(k.added, func(g grantor, _ delivery) bool {
		_, member := v.Index(g.id)
		return !member
	})
	k.noteUnconfirmed()
	k.Router.SetView(v)
	k.witness(renewed)
	k.look()
	k.Adopted(v)
}

func (k *Ownership) adoptPart(p uint32, old *View, lapsed bool) {
	pt, v := &k.parts[p], k.view
	c := k.claim(p)
	had := pt.tenure
	if lapsed {
		pt.tenure.lapse()
	}
	pt.tenure.adopt(c, k.ownParty)
	if k.leaving() { // it may be gone before another node has fetched what it would make
		pt.tenure.forgo()
	}
	if had.state == active && pt.tenure.state != active {
		k.metrics.fenced.Inc()
		k.queueLast(p)
		k.sealGate(p)
	}
	if pt.tenure.state == absent && had.state != absent {
		pt.copy, pt.fresh = copyVersion{term: had.term, seq: pt.sequence, whole: true}, true
		if k.isParting(p) {
			pt.copy.seq++ // it may have more than was sent
		}
	}
	if pt.tenure.creates == firstOf(c.epoch) {
		if _, noted := k.unconfirmed[c.epoch]; !noted {
			k.unconfirmed[c.epoch] = time.Time{}
		}
	}
	if old != nil {
		before := old.Members[old.Ring.Owner(p)]
		pt.restarted = pt.restarted || before.ID == k.Self.ID && before.Incarnation != k.ownParty.incarnation
		if i, stays := v.Index(before.ID); stays && v.Members[i].Incarnation == before.Incarnation && before.ID != k.Self.ID && c.owner.id != before.ID {
			pt.from = before.ID
		}
	}
	if _, stays := v.Index(pt.from); !stays {
		pt.from = ""
	}
	k.adoptCopy(p, old, had.state != absent)
	k.follow(p)
}

// adoptCopy records which member may have a better copy of a partition than this node: the standby
// before this view, unless it was restarted since. If that was not this node, and it did not have the partition
// itself, what copy it has is an old one.
func (k *Ownership) adoptCopy(p uint32, old *View, had bool) {
	pt, v := &k.parts[p], k.view
	pt.elsewhere = false
	stood := old != nil && (old.partyAt(old.Ring.Standby(p)) == k.ownParty || pt.fresh && old.partyAt(old.Ring.Owner(p)) == k.ownParty)
	if !had && !stood {
		pt.fresh, pt.last = false, false
	}
	if old != nil && old.partyAt(old.Ring.Standby(p)) != v.partyAt(v.Ring.Standby(p)) {
		pt.copyAt = old.partyAt(old.Ring.Standby(p))
	}
	if i, stays := v.Index(pt.copyAt.id); !stays || v.partyAt(i) != pt.copyAt || pt.copyAt == k.ownParty {
		pt.copyAt = party{}
	}
}

// hasToCreate reports whether there is a tenure of that epoch that this node is to make.
func (k *Ownership) hasToCreate(epoch uint64) bool {
	for p := range k.parts {
		if c := k.claim(uint32(p)); c.epoch == epoch && k.parts[p].tenure.mayCreate(c) {
			return true
		}
	}
	return false
}

// open lets the shard decide in a partition whose tenure is now held. What was granted in
// its owner's place is part of its counters.
func (k *Ownership) open(p uint32) {
	pt := &k.parts[p]
	pt.sequence, pt.from, pt.copy, pt.restarted, pt.copyAt, pt.parting = 0, "", copyVersion{}, false, party{}, time.Time{}
	delete(k.outbox, p)
	k.DenialLeases.Opened(p, uint32(len(k.parts)))
	k.Shard.Unseal(p)
	k.follow(p)
}

func (k *Ownership) sealGate(p uint32) {
	k.Shard.Seal(p)
	k.follow(p)
}

// follow has the changes of a partition noted for its standby, if it has one.
func (k *Ownership) follow(p uint32) {
	pt, v := &k.parts[p], k.view
	standby := ""
	switch m := v.Members[v.Ring.Standby(p)]; {
	case pt.tenure.state == active && m.ID != k.Self.ID:
		standby = m.ID
	case pt.tenure.state == active && k.peers[pt.standby] != nil: // this node stands by once it has handed p over: the former standby does until then
		standby = pt.standby
	case k.isParting(p):
		standby = pt.standby
	}
	old := k.standbys[p].Swap(k.peers[standby])
	if standby == pt.standby {
		return
	}
	if old != nil {
		old.awaited.Store(0) // what waited for it waits for the next one, if there is one
	}
	if pt.standby != "" {
		k.Shard.Unfollow(p, shard.ToStandby)
	}
	pt.standby = standby
	if k.followFromStart(p); standby == "" {
		k.DenialLeases.strictAcks.drop(p)
	}
}

// queueLast has the standby sent what it does not know yet of a tenure that a view has fenced just now: it goes on from its copy, or
// the node that fetches that.
func (k *Ownership) queueLast(p uint32) {
	if pt := &k.parts[p]; pt.standby != "" {
		pt.parting = time.Now()
		k.urgent(p)
	}
}

// isParting reports whether the standby is still to be sent the last changes of a tenure that is gone.
func (k *Ownership) isParting(p uint32) bool {
	pt := &k.parts[p]
	old := k.standbys[p].Load()
	return !pt.parting.IsZero() && time.Since(pt.parting) < partingPatience && old != nil && k.peers[pt.standby] == old
}

// parted ends that the standby of p is sent anything of a tenure that is gone.
func (k *Ownership) parted(p uint32) {
	if pt := &k.parts[p]; !pt.parting.IsZero() {
		pt.parting = time.Time{}
		k.follow(p)
	}
}

// followFromStart has the standby, if there is one, given everything from the beginning.
func (k *Ownership) followFromStart(p uint32) {
	pt := &k.parts[p]
	pt.begun, pt.whole = false, false
	pt.followed++
	if pt.standby != "" {
		k.Shard.Follow(p, shard.ToStandby)
	}
}

// others returns the other members.
func (k *Ownership) others() []*otherMember {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Values(k.peers))
}

// look has the node look at what it should hold.
func (k *Ownership) look() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// heed looks at the clock, over and over: a node that does not was stopped.
func (k *Ownership) heed(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for looks := 0; ; looks++ {
		k.attest()
		if looks%int(replicateEvery/lookEvery) == 0 {
			k.remind()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// attest has the etcd lease confirm the decision lease.
func (k *Ownership) attest() {
	renewed := k.Renewed()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.witness(renewed)
}

// witness records when the etcd lease was renewed, and reports to the shard until when it may
// decide.
func (k *Ownership) witness(renewed time.Time) {
	k.lease.look(time.Now())
	k.lease.renewed = renewed
	k.Shard.SetDecisionLease(k.lease.until())
	if k.lease.due() && !k.gathering && k.ctx != nil && k.ctx.Err() == nil {
		k.gathering, k.lease.returned = true, k.lease.looked
		k.cohort.Go(func() error { k.gather(k.ctx); return nil })
	}
}

// noteUnconfirmed records since when no majority confirms the decision leases of owners from before an epoch any more.
func (k *Ownership) noteUnconfirmed() {
	for e, since := range k.unconfirmed {
		if since.IsZero() && k.adopted.ended(k.view, e) {
			k.unconfirmed[e] = time.Now()
		}
	}
}

// fenced reports whether all owners from before that epoch must have ceased to admit.
func (k *Ownership) fenced(epoch uint64) bool {
	since := k.unconfirmed[epoch]
	if since.IsZero() {
		return false
	}
	first := epoch == 1 // no node has held anything
	onlyHere := k.onlyHere(epoch)
	return first || onlyHere || time.Since(since) >= decisionLeaseTime+fenceSlack
}

// onlyHere reports whether no node but this one, before it was restarted, can have held a tenure from before that epoch.
func (k *Ownership) onlyHere(epoch uint64) bool {
	lives := livesOf(k.view.Members)
	if epoch <= k.view.Changed {
		lives = k.view.Before
	}
	return len(k.view.Members) == 1 && !slices.ContainsFunc(lives, func(l Life) bool { return l.ID != k.Self.ID })
}

// Run acquires, replicates and gives partitions away until ctx ends.
func (k *Ownership) Run(ctx context.Context) {
	k.mu.Lock()
	k.ctx = ctx
	for _, c := range k.peers {
		k.attend(c)
	}
	k.cohort.Go(func() error { k.heed(ctx); return nil })
	k.cohort.Go(func() error { k.admission.run(ctx); return nil })
	k.mu.Unlock()
	tick := time.NewTicker(acquireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			k.mu.Lock()
			for _, c := range k.peers {
				c.leave()
			}
			k.mu.Unlock()
			_ = k.cohort.Wait() // they return nothing
			return
		case <-k.kick:
		case <-tick.C:
		}
		k.acquire(ctx)
		k.tidy()
	}
}

// tidy forgets copies of partitions that are no business of this node any more, once others had
// the time to ask for them.
func (k *Ownership) tidy() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view == nil {
		return
	}
	for p := range k.parts {
		pt, r := &k.parts[p], k.view.Ring
		if !k.isParting(uint32(p)) {
			k.parted(uint32(p))
		}
		owner, standby := k.view.Members[r.Owner(uint32(p))].ID, k.view.Members[r.Standby(uint32(p))].ID
		switch {
		case pt.copy.term == 0, pt.tenure.state != absent, pt.pulling, owner == k.Self.ID, standby == k.Self.ID:
			pt.idle = time.Time{}
		case pt.idle.IsZero():
			pt.idle = time.Now()
		case time.Since(pt.idle) >= pt.copy.keep():
			k.Shard.Clear(uint32(p))
			pt.copy, pt.idle = copyVersion{}, time.Time{}
		}
	}
}
