package cluster

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

// NewOwners returns the Owners of a node that has no copies: it seals all partitions of the shard.
func NewOwners(c OwnersConfig, params ring.Params) *Owners {
	o := &Owners{
		OwnersConfig: c, params: params,
		standbys: make([]atomic.Pointer[otherMember], params.Partitions), farewellHeard: make(chan struct{}, 1),
	}
	o.knownMembers.self, o.knownMembers.router = o.life, c.Router
	o.knownMembers.byLife.Store(new(map[view.Life]*otherMember))
	o.knownMembers.farewells.Store(new([]view.Life))
	o.standIns.o = o
	o.standIns.byPartition.Store(new([]view.Life))
	o.inquiries = inquiries{
		self: c.Self.ID, greeter: c.Greeter, router: c.Router, members: o.knownMembers.all, caller: o.caller, status: o.HandoverStatus, load: o.Load,
		top: c.Top, events: c.Events, log: c.Decisions, sendsDecisions: make(chan struct{}, decisionStreams),
	}
	if c.Self.Incarnation == 0 {
		o.Self.Incarnation = view.UncountedIncarnation(c.Counted, time.Now(), rand.Uint64())
	}
	o.Greeter.become(o.Self.Incarnation)
	o.admission = newAdmission(c.Self.ID, c.Greeter, c.Dial, c.Router.Reaches, c.Renewed, c.Logger)
	o.metrics = newOwnershipMetrics(c.Metrics)
	c.Metrics.MustRegister(ownershipCollector{o})
	o.node = ownership.NewNode(ownership.Config{
		Self: o.life(), Shard: c.Shard, Partitions: params.Partitions, Plan: o.Plan, Peers: o.carrier(), Reports: o.Reports, IsGone: o.isGone,
		HasSaidFarewell: o.knownMembers.hasSaidFarewell, StandIns: o.standIns.all, Attest: o.attest, Observer: observer{o}, Logger: c.Logger,
	})
	c.Router.own.locator = locator{o}
	c.Router.own.denialLeases.strictAcks = &strictAcks{
		standbys: o.standbys, urgent: o.node.Hurry, started: time.Now(), log: c.Logger,
		deferred: o.metrics.deferred, unacknowledged: o.metrics.unacknowledged, parts: make([]owed, params.Partitions),
	}
	return o
}

// Become gives a node that has started without its registry the incarnation that this has counted since. No view names the one that it had.
func (o *Owners) Become(incarnation uint64) {
	o.Greeter.become(incarnation)
	o.node.Become(o.life())
}

// Adopt makes v the view, unless a newer one is.
func (o *Owners) Adopt(v *view.View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.view != nil && v.Number <= o.view.Number || len(v.Partitions) != o.params.Partitions {
		return
	}
	routing, err := RoutingView(v)
	if err != nil {
		o.Logger.Error("view refused", "view", v.Number, "error", err)
		return
	}
	if o.view == nil || o.view.Changed != v.Changed {
		o.changed = time.Now()
	}
	if o.view != nil && v.Waived > o.view.Waived {
		o.metrics.waived.Inc()
	}
	o.view = v
	o.meet(v)
	o.newest.Keep(v)
	o.keepFarewells()
	o.node.Adopt(v)
	o.newest.Note(o.node.Report())
	o.Router.SetView(routing)
	o.Keep(v)
	o.knownMembers.beatSoon()
}

// Run drives the copies until ctx ends.
func (o *Owners) Run(ctx context.Context) {
	o.mu.Lock()
	o.ctx = ctx
	for _, c := range *o.knownMembers.byLife.Load() {
		o.attend(c)
	}
	o.running.Go(func() { o.admission.run(ctx) })
	o.running.Go(func() { o.knownMembers.askAboutLost(ctx) })
	o.mu.Unlock()
	o.node.Run(ctx)
	o.mu.Lock()
	for _, c := range *o.knownMembers.byLife.Load() {
		c.leave()
	}
	o.mu.Unlock()
	o.running.Wait()
}

// attest has the etcd lease confirm the decision lease, and tells the others once this node has settled. It looks which members are lost. The node calls it each time
// that it looks at the clock.
func (o *Owners) attest() {
	o.standIns.lookSometimes()
	granted, renewed, waits := o.Granted(), o.Renewed(), o.node.IsWaiting()
	o.mu.Lock()
	isNew, isRenewed := granted != o.granted && !granted.IsZero(), renewed.After(o.renewed)
	settled, ctx := o.waited && !waits, o.ctx
	o.granted, o.waited = granted, waits
	if isRenewed {
		o.renewed = renewed
	}
	o.mu.Unlock()
	if isNew {
		o.node.Granted()
		o.running.Go(func() { o.read(ctx, granted) })
	}
	if isRenewed {
		o.node.Renewed(renewed)
	}
	if settled {
		o.knownMembers.beatSoon()
	}
}

// read reads the view once an etcd lease was granted, until that succeeds or another one was granted.
func (o *Owners) read(ctx context.Context, granted time.Time) {
	for ctx.Err() == nil {
		began := time.Now()
		v, err := o.ReadView(ctx)
		if err == nil && v != nil {
			o.Adopt(v)
			o.node.Read(began, v.Number)
			return
		}
		o.mu.Lock()
		over := o.granted != granted
		o.mu.Unlock()
		if over {
			return
		}
		pauseFor(ctx.Done(), readAgain)
	}
}
