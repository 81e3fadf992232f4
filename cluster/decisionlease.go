package cluster

import (
	"slices"
	"time"
)

// decisionLeaseTime is how long a node may decide after etcd or a majority has last confirmed its decision lease. A
// new owner waits as long before it creates a tenure again, once a majority has adopted
// the view that says so.
const decisionLeaseTime = 1500 * time.Millisecond

// suspendAfter is how long a node may not have looked at its clock and go on as if nothing had
// happened. It is less than a standby waits for an owner before it decides in its place, unless
// a shorter wait is configured.
const suspendAfter = 200 * time.Millisecond

// decisionLease says until when a node may decide. No etcd lease fences a node that was stopped for
// a while: it must look at the clock itself. The witnesses are etcd, which has
// renewed the node's etcd lease, or a majority of the members, which have answered heartbeats
// and knew no newer view. What counts is when the request was sent.
//
// Either will do: a tenure is only created again when its owner's etcd lease is gone and a
// majority has left the owner's view.
//
// A decision lease that has lapsed, for lack of witnesses or because the node itself did not run for a
// while, is suspended. It does not become valid with the next witness: a standby may have granted in the
// node's place meanwhile, and must be heard first.
//
//	┌───────┐ no witness for decisionLeaseTime, or not looked for suspendAfter ┌───────────┐
//	│ valid │ ───────────────────────────────────────────────────────────────► │ suspended │
//	│       │ ◄─────────────────────────────────────────────────────────────── │           │
//	└───────┘              witnesses, and then all standbys were heard         └───────────┘
type decisionLease struct {
	renewed   time.Time            // the etcd lease
	heard     map[string]time.Time // of the other members, when the last heartbeat was sent that each has answered
	before    time.Time            // when a majority of the members of the views before this one has last answered
	looked    time.Time            // when this node has last looked at its clock
	returned  time.Time            // when it has found that it had not for long
	suspended bool                 // the standbys were not heard since the lease lapsed
	lapses    uint64               // how often this node has looked and found that it had none
	outside   bool                 // the view does not name this node: nothing is its to decide
	member    bool                 // a view has named it
}

// view names the other members. What was heard of those that stay still counts. What a majority has said before this view counts
// as long as it would have without it: else a node that does not hear from all would be suspended until the new member has answered.
//
// member says whether the view names this node. A node that comes back as a member has lapsed.
func (l *decisionLease) view(others []string, member bool) {
	if l.outside && member && l.member {
		l.lapse()
	}
	l.outside, l.member = !member, l.member || member
	if !l.alone() {
		l.before = later(l.before, l.majority())
	}
	old := l.heard
	l.heard = make(map[string]time.Time, len(others))
	for _, id := range others {
		l.heard[id] = old[id]
	}
}

// answered records a heartbeat that a member has answered.
func (l *decisionLease) answered(id string, sent time.Time) {
	if last, member := l.heard[id]; member && sent.After(last) {
		l.heard[id] = sent
	}
}

// look records that the node has looked at its clock now, and whether the lease had lapsed before. It comes before all
// that prolongs it.
func (l *decisionLease) look(now time.Time) {
	switch {
	case l.alone():
		l.suspended = false
	case now.Sub(l.looked) >= suspendAfter:
		l.returned = now
		l.lapse()
	case !now.Before(l.witnessed()):
		l.lapse()
	}
	l.looked = now
}

func (l *decisionLease) lapse() {
	l.suspended = true
	l.lapses++
}

// resume makes the lease valid again, unless it has lapsed again since the count of lapses was the given one. It
// reports whether it did.
func (l *decisionLease) resume(now time.Time, lapses uint64) bool {
	l.look(now)
	if l.lapses != lapses {
		return false
	}
	l.suspended = false
	return true
}

// due reports whether only the standbys' replies are outstanding.
func (l *decisionLease) due() bool { return l.suspended && l.looked.Before(l.witnessed()) }

// returns reports whether the lease is suspended, for less than within so far, or is about to be found so.
func (l *decisionLease) returns(now time.Time, within time.Duration) bool {
	switch {
	case l.alone():
		return false
	case l.suspended:
		return now.Sub(l.returned) < within
	default: // and has not noticed yet
		return now.Sub(l.looked) >= suspendAfter
	}
}

// wasStopped reports whether this node has gone on within that time after a stop, or is about to find so.
func (l *decisionLease) wasStopped(now time.Time, within time.Duration) bool {
	return !l.alone() && (now.Sub(l.looked) >= suspendAfter || now.Sub(l.returned) < within)
}

func (l *decisionLease) alone() bool { return len(l.heard) == 0 }

// until returns when this node ceases to decide unless it looks again, the zero time if it
// never does: if it is alone.
func (l *decisionLease) until() time.Time {
	switch {
	case l.alone():
		return time.Time{}
	case l.suspended, l.outside:
		return l.looked
	}
	until := l.looked.Add(suspendAfter)
	if w := l.witnessed(); w.Before(until) {
		until = w
	}
	return until
}

// witnessed returns until when this node may decide by what its witnesses have said, the zero
// time for ever: if it is alone.
func (l *decisionLease) witnessed() time.Time {
	if l.alone() {
		return time.Time{}
	}
	return later(l.majority(), later(l.renewed, l.before)).Add(decisionLeaseTime)
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// majority returns when a majority of the members, this one included, has last answered.
func (l *decisionLease) majority() time.Time {
	sent := make([]time.Time, 0, len(l.heard))
	for _, t := range l.heard {
		sent = append(sent, t)
	}
	slices.SortFunc(sent, func(x, y time.Time) int { return y.Compare(x) })
	others := (len(sent) + 1) / 2 // of 2 members the other one, of 3 one, of 4 and of 5 two
	return sent[others-1]
}
