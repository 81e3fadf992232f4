package ownership

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// decisionLease is a node's decision lease, by which the shard decides. It is safe for concurrent use.
type decisionLease struct {
	shard   *shard.Shard
	started time.Time
	until   atomic.Int64 // end of the decision lease, in nanoseconds since started; math.MaxInt64 for none
	isOver  atomic.Bool  // this node has ceased to decide, for good
	// hear begins to ask the standbys for their deltas, and reports whether it has. It is called with mu held.
	hear func() bool

	mu      sync.Mutex // held while a view is adopted; over partition.mu
	lease   replica.Lease
	hearing bool          // standbys are asked for their deltas
	resumed chan struct{} // closed when the decision lease is valid again, and then another one
	lapsed  time.Time     // when this node has found last that its decision lease had lapsed
	halted  time.Time     // when it has found last that it had not looked at the clock for long
	ran     time.Time     // when it had looked last before that
	// wasCutOff says that no witness had answered when this node lost the decision lease last. Else it had stood still.
	wasCutOff bool
}

// isValid reports whether the decision lease is valid.
func (d *decisionLease) isValid() bool { return int64(time.Since(d.started)) < d.until.Load() }

// isAt reports whether the lease is by the view of that number, and no newer one.
func (d *decisionLease) isAt(number uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lease.Number == number
}

// noteUntil records until when the decision lease is valid. d.mu is held.
func (d *decisionLease) noteUntil() (until time.Time, forever bool) {
	until, forever = d.lease.Until()
	if d.isOver.Load() {
		until, forever = time.Time{}, false
	}
	if forever {
		d.until.Store(math.MaxInt64)
	} else {
		d.until.Store(int64(until.Sub(d.started)))
	}
	return until, forever
}

// setLease has the shard decide as long as the decision lease is valid. d.mu is held.
func (d *decisionLease) setLease() {
	switch until, forever := d.noteUntil(); {
	case forever:
		d.shard.SetDecisionLease(time.Time{})
	case until.IsZero():
		d.shard.SetDecisionLease(d.started)
	default:
		d.shard.SetDecisionLease(until)
	}
}

// adopt takes over the members of a newer view. The shard decides no longer than by them, and no longer than before until setLease. d.mu is held.
func (d *decisionLease) adopt(v *view.View) {
	d.lookAt(time.Now())
	d.lease = d.lease.Adopt(v.Number, v.Lives())
	d.noteUntil()
	if !d.isValid() {
		d.setLease()
	}
}

// become makes it the lease of another life of the node. d.mu is held.
func (d *decisionLease) become(l view.Life) {
	lease := replica.NewLease(l)
	lease.Number, lease.Looked = d.lease.Number, d.lease.Looked
	d.lease = lease
}

// End ends that this node decides, for good.
func (d *decisionLease) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isOver.Store(true)
	d.setLease()
}

// IsOver reports whether this node has ceased to decide, for good.
func (d *decisionLease) IsOver() bool { return d.isOver.Load() }

// look has the decision lease look at the clock, then learn something, and the shard decide by it. If nothing but the standbys' replies is
// outstanding, they are asked.
func (d *decisionLease) look(learn func(replica.Lease) replica.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookAt(time.Now())
	d.lease = learn(d.lease)
	d.setLease()
	if d.lease.Due() && !d.hearing {
		d.hearing = d.hear()
	}
}

// lookAt has the decision lease look at the clock, and notes what it finds. d.mu is held.
func (d *decisionLease) lookAt(now time.Time) {
	was := d.lease
	stoodStill := !was.Looked.IsZero() && now.Sub(was.Looked) >= replica.SuspendAfter
	if stoodStill {
		d.halted, d.ran = now, was.Looked
	}
	d.lease = was.Look(now)
	if d.lease.Lapses == was.Lapses || d.lease.Role != replica.IsMember {
		return
	}
	d.lapsed = now
	if !was.Suspended {
		d.wasCutOff = !stoodStill
	}
}

// Answered records that a node has answered a heartbeat that was sent then, with the number of the newest view that it knew.
func (d *decisionLease) Answered(by view.Life, number uint64, sent time.Time) {
	d.look(func(l replica.Lease) replica.Lease { return l.Answered(by, number, sent) })
}

// Granted records that etcd has granted a lease to this node just now.
func (d *decisionLease) Granted() {
	d.look(func(l replica.Lease) replica.Lease { return l.Granted(time.Now()) })
}

// Read records that a linearizable read of the view, which began then, has found the view of that number, 0 for none. It was adopted.
func (d *decisionLease) Read(began time.Time, number uint64) {
	d.look(func(l replica.Lease) replica.Lease { return l.Read(began, number) })
}

// Renewed records a renewal of the etcd lease that was sent then and has succeeded.
func (d *decisionLease) Renewed(sent time.Time) {
	d.look(func(l replica.Lease) replica.Lease { return l.Renewed(sent) })
}

// returnWithin is how long after a lapse or a halt of this node others may not have been heard for no fault of theirs.
const returnWithin = 500 * time.Millisecond

// Returning returns a channel that is closed when this node may decide again, if its decision lease has lapsed just now, or else nil.
func (d *decisionLease) Returning() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isValid() || !d.standsStill() && (d.lapsed.IsZero() || time.Since(d.lapsed) >= returnWithin) {
		return nil
	}
	return d.resumed
}

// standsStill reports whether this node has not looked at the clock for long, and so goes on only now. n.mu is held.
func (d *decisionLease) standsStill() bool {
	return !d.lease.Looked.IsZero() && time.Since(d.lease.Looked) >= replica.SuspendAfter
}

// WasHalted reports whether this node has gone on just now after it did not run for a while.
func (d *decisionLease) WasHalted() bool { return !d.RanUntil().IsZero() }

// RanUntil returns when this node ceased to run, if it has gone on just now, and else the zero value.
func (d *decisionLease) RanUntil() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.standsStill():
		return d.lease.Looked
	case !d.halted.IsZero() && time.Since(d.halted) < returnWithin:
		return d.ran
	}
	return time.Time{}
}

// Until returns when the decision lease ends if no witness answers from now on, and whether it never does.
func (d *decisionLease) Until() (until time.Time, forever bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lease.Witnessed()
}
