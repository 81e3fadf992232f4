package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
)

// Times of a node that ends.
const (
	lastTimeout     = 250 * time.Millisecond // for others to have all that it has
	farewellTimeout = 250 * time.Millisecond // for members to hear its farewell
)

// EndConfirming ends that this node confirms decision leases of others: it is about to report that it has left, and may end before it learns of another view.
func (o *Owners) EndConfirming() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.confirmsNone = true
}

// Flush leaves the partitions to their standbys. It gives up when ctx ends.
func (o *Owners) Flush(ctx context.Context) { o.node.Flush(ctx) }

// SayFarewell ends that this node decides and confirms decision leases, for good. It sends others all that the node has, and then says so to all
// members that it reaches. They need not wait for the end of its etcd lease, which may not have been given back. The servers of the node have stopped, so
// that it grants nothing any more. A node that no view names says nothing.
func (o *Owners) SayFarewell() {
	o.node.End()
	o.EndConfirming()
	o.SendLast()
	o.mu.Lock()
	isNamed := o.view != nil && o.view.Names(o.life())
	o.mu.Unlock()
	if !isNamed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewellTimeout)
	defer cancel()
	reports, farewells := o.Reports().Append(nil), wireFarewells(append(slices.Clip(o.Farewells()), o.life()))
	var calls sync.WaitGroup
	for _, c := range o.knownMembers.all() {
		calls.Go(func() {
			caller := o.caller(c)
			caller.To, caller.View = 0, 0 // it may have been restarted, and must not fetch a view from here
			if _, err := c.client.Heartbeat(ctx, &peerv1.HeartbeatRequest{Caller: caller, Reports: reports, Farewells: farewells}); err != nil {
				o.Logger.Debug("farewell not heard", "member", c.member.ID, "error", err)
			}
		})
	}
	calls.Wait()
}

// SendLast returns once others have all that this node has, which has ceased to decide for good: what was added since Flush, too.
func (o *Owners) SendLast() {
	ctx, cancel := context.WithTimeout(context.Background(), lastTimeout)
	defer cancel()
	o.node.SendLast(ctx)
}

// FarewellHeard implements Electorate.
func (o *Owners) FarewellHeard() <-chan struct{} { return o.farewellHeard }

// noteFarewells records which lives have said farewell, as a member knows it, and reports whether this life is one. o.mu is held.
func (o *Owners) noteFarewells(farewells []*peerv1.Farewell) (ended bool) {
	for _, f := range farewells {
		l := view.Life{ID: f.GetId(), Incarnation: f.GetIncarnation()}
		if l == o.life() {
			ended = true
			continue
		}
		if o.newest.NoteFarewell(l) {
			o.Logger.Info("a member has left", "id", l.ID, "incarnation", l.Incarnation)
			o.keepFarewells()
			o.knownMembers.beatSoon()
			o.node.LookSoon()
			fill(o.farewellHeard)
		}
	}
	return ended
}

// keepFarewells has others know what newest has. o.mu is held.
func (o *Owners) keepFarewells() {
	farewells := o.newest.Farewells()
	o.knownMembers.farewells.Store(&farewells)
	o.standIns.find()
}

func wireFarewells(lives []view.Life) (farewells []*peerv1.Farewell) {
	for _, l := range lives {
		farewells = append(farewells, &peerv1.Farewell{Id: l.ID, Incarnation: l.Incarnation})
	}
	return farewells
}
