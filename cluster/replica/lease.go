package replica

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// LeaseTime is how long a witness confirms a decision lease, from the moment at which it was asked. A successor waits as long before a
// predecessor counts as ended.
const LeaseTime = 1500 * time.Millisecond

// SuspendAfter is how long a node may not have looked at its clock and go on as if nothing had happened. Standbys wait longer than that
// for an owner before they grant in its place.
const SuspendAfter = 200 * time.Millisecond

// Lease is the decision lease of one life of a node: the right to decide, as long as witnesses renew it. It is a value; the methods return
// the lease after what has happened. Instants are those of the node's own monotonic clock.
//
// The witnesses are etcd, which has renewed the node's etcd lease, or a majority of the members of its newest view, which have answered
// heartbeats and knew no newer view. Either will do, since a predecessor has ended only when it can have neither: see Ending. An instant
// counts from when a request was sent.
//
//	event      if                                          effect
//	Adopt      it is a member of the view                  the members of that view are the witnesses; what a majority of those before said still counts
//	           it is no member                             there are no witnesses; when it is one again, the lease is suspended
//	           it was the only member                      the lease is suspended
//	Answered   of a life that the view names as member,    that member has confirmed the lease
//	           which knows no newer view
//	Granted                                                the etcd lease is another one, and confirms nothing yet
//	Read       it began after the grant, and what it       the etcd lease is a witness
//	           has found was adopted
//	Renewed    the etcd lease is a witness                 etcd has confirmed the lease
//	Look       it has not looked for SuspendAfter, or      the lease is suspended
//	           no witness has confirmed for LeaseTime
//	Resume     it was not suspended again meanwhile        the lease is valid again: all standbys were heard
type Lease struct {
	Self   view.Life
	Number uint64 // of the newest view that the node has adopted
	// Witnesses are the other members of that view; nil if it does not name this node as a member.
	Witnesses []Witness
	// Before is when a majority of the members of the views before was last asked that has answered.
	Before time.Time
	Etcd   EtcdLease
	// Looked is when the node has last looked at its clock.
	Looked time.Time
	// Suspended says that the standbys were not heard since the lease has lapsed. Lapses counts how often it has.
	Suspended bool
	Lapses    uint64
	Role      Role
}

// Role is whether the newest view names the node as a member.
type Role uint8

// The roles.
const (
	NeverMember Role = iota
	IsMember
	WasMember
)

// Witness is another member.
type Witness struct {
	Life view.Life
	Sent time.Time // when it was asked the last time that it has confirmed the lease
}

// EtcdLease is what a decision lease knows of the node's etcd lease. The zero value is that of a node without one.
type EtcdLease struct {
	Granted time.Time // when the answer came which said that it was granted
	Counts  bool      // the view was read since
	Renewed time.Time // when the last renewal was sent that has counted, of this etcd lease or the one before; the zero time if none has
}

// NewLease returns the decision lease of a node that has just started.
func NewLease(self view.Life) Lease { return Lease{Self: self, Suspended: true} }

// Adopt takes over the members of a newer view.
func (l Lease) Adopt(number uint64, members []view.Life) Lease {
	if number <= l.Number {
		return l
	}
	l.Number = number
	if !slices.Contains(members, l.Self) {
		l.Witnesses, l.Before = nil, time.Time{}
		if l.Role == IsMember {
			l.Role = WasMember
		}
		return l
	}
	if l.Role == WasMember || l.isAlone() && len(members) > 1 {
		l = l.lapse() // it may have stood still without a lapse
	}
	if l.Role == IsMember && !l.isAlone() {
		l.Before = later(l.Before, l.majority())
	}
	l.Role = IsMember
	old := l.Witnesses
	l.Witnesses = make([]Witness, 0, len(members)-1)
	for _, m := range members {
		if m == l.Self {
			continue
		}
		w := Witness{Life: m}
		if i := slices.IndexFunc(old, func(o Witness) bool { return o.Life == m }); i >= 0 {
			w.Sent = old[i].Sent
		}
		l.Witnesses = append(l.Witnesses, w)
	}
	return l
}

// Answered records that a node has answered a heartbeat that was sent then, with the number of the newest view that it knew.
func (l Lease) Answered(by view.Life, number uint64, sent time.Time) Lease {
	i := slices.IndexFunc(l.Witnesses, func(w Witness) bool { return w.Life == by })
	if i < 0 || number > l.Number || !sent.After(l.Witnesses[i].Sent) {
		return l
	}
	l.Witnesses = slices.Clone(l.Witnesses)
	l.Witnesses[i].Sent = sent
	return l
}

// Granted records that etcd has answered now, that it has granted a lease. What the lease before has confirmed still counts. The new one does not yet: a
// successor may know the end of the one before.
func (l Lease) Granted(now time.Time) Lease {
	l.Etcd.Granted, l.Etcd.Counts = now, false
	return l
}

// Read records what a linearizable read of the view, which began then, has found: the number of the view, 0 if there was none. The view
// is adopted first: one that is newer than the lease's says that the node knows too little.
func (l Lease) Read(began time.Time, number uint64) Lease {
	if !l.Etcd.Granted.IsZero() && !began.Before(l.Etcd.Granted) && number != 0 && number <= l.Number {
		l.Etcd.Counts = true
	}
	return l
}

// Renewed records a renewal of the etcd lease that was sent then and has succeeded.
func (l Lease) Renewed(sent time.Time) Lease {
	if l.Etcd.Counts {
		l.Etcd.Renewed = later(l.Etcd.Renewed, sent)
	}
	return l
}

// Look records that the node looks at its clock now. It comes before all else that a node does after it has waited.
func (l Lease) Look(now time.Time) Lease {
	switch {
	case l.isAlone():
		l.Suspended = false
	case now.Sub(l.Looked) >= SuspendAfter, !now.Before(l.witnessed()):
		l = l.lapse()
	}
	l.Looked = now
	return l
}

// Resume makes the lease valid again, if it has not lapsed since Lapses was that. All standbys were heard since.
func (l Lease) Resume(now time.Time, lapses uint64) Lease {
	if l = l.Look(now); l.Lapses == lapses {
		l.Suspended = false
	}
	return l
}

// Until returns until when the node may decide unless it looks at its clock again, and whether that is for ever: if it is the only
// member. It may decide at no instant that is not before that. The zero time is never.
func (l *Lease) Until() (until time.Time, forever bool) {
	switch {
	case l.Role != IsMember:
		return time.Time{}, false
	case l.isAlone():
		return time.Time{}, true
	case l.Suspended:
		return time.Time{}, false
	}
	until = l.Looked.Add(SuspendAfter)
	if w := l.witnessed(); w.Before(until) {
		until = w
	}
	return until, false
}

// Due reports whether nothing but the standbys' replies is outstanding.
func (l *Lease) Due() bool {
	return l.Role == IsMember && !l.isAlone() && l.Suspended && l.Looked.Before(l.witnessed())
}

// Witnessed returns until when the witnesses have confirmed the lease, and whether it needs none.
func (l *Lease) Witnessed() (until time.Time, forever bool) {
	if l.isAlone() {
		return time.Time{}, true
	}
	return l.witnessed(), false
}

func (l Lease) lapse() Lease {
	l.Suspended = true
	l.Lapses++
	return l
}

func (l *Lease) isAlone() bool { return l.Role == IsMember && len(l.Witnesses) == 0 }

// witnessed returns until when the witnesses have confirmed the lease. The node is a member and not the only one, or has no witnesses.
func (l *Lease) witnessed() time.Time {
	last := l.Etcd.Renewed
	if len(l.Witnesses) > 0 {
		last = later(last, later(l.Before, l.majority()))
	}
	if last.IsZero() {
		return time.Time{}
	}
	return last.Add(LeaseTime)
}

// majority returns when a majority of the members, this one included, was last asked that has answered.
func (l *Lease) majority() time.Time {
	sent := make([]time.Time, 0, len(l.Witnesses))
	for _, w := range l.Witnesses {
		sent = append(sent, w.Sent)
	}
	slices.SortFunc(sent, func(x, y time.Time) int { return y.Compare(x) })
	others := (len(sent) + 1) / 2 // of 2 members the other one, of 3 one, of 4 and of 5 two
	return sent[others-1]
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// Ending is what a successor knows of a predecessor's end. The zero value is that of one which is not known to have ended.
type Ending struct {
	Since time.Time // since when the predecessor has no witness any more; the zero time if it may have one
}

// Observe records whether the predecessor has no witness any more: its etcd lease was gone at some moment after the view was written that has
// replaced it, and view.HaveLeft is true for that view. Both stay true once they are.
func (e Ending) Observe(now time.Time, over bool) Ending {
	switch {
	case !over:
		e.Since = time.Time{}
	case e.Since.IsZero():
		e.Since = now
	}
	return e
}

// HasEnded reports whether the predecessor cannot decide any more: what its witnesses have said before is over, too.
func (e Ending) HasEnded(now time.Time) bool {
	return !e.Since.IsZero() && now.Sub(e.Since) >= LeaseTime
}
