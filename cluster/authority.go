package cluster

import (
	"slices"
	"time"
)

// authorityTerm is how long a node may admit after somebody has last borne witness to it. A
// new owner waits for as long before it makes a token anew, once a majority has adopted
// the view that says so.
const authorityTerm = 1500 * time.Millisecond

// awayAfter is how long a node may not have looked at its clock and go on as if nothing had
// happened: for less than a standby waits for an owner before it decides in its place, as long
// as nobody is configured to wait for less.
const awayAfter = 200 * time.Millisecond

// authority says until when a node may admit. No lease fences a node that was stopped for
// a while: it must look at the clock itself. The witnesses are etcd, which has
// renewed the node's lease, or a majority of the members, which have answered heartbeats
// and knew no newer view. What counts is when the request was sent.
//
// Either will do: a token is only made anew when its holder's lease is gone and a
// majority has left the holder's view.
//
// Authority that has ended, for lack of witnesses or because the node itself did not run for a
// while, does not begin again with the next witness: somebody else may have granted in the
// node's place meanwhile, and must be heard first.
//
//	┌────┐ no witness for authorityTerm, or not looked for awayAfter ┌──────┐
//	│ at │ ────────────────────────────────────────────────────────► │ away │
//	│home│ ◄──────────────────────────────────────────────────────── │      │
//	└────┘       witnesses, and then all standbys were heard         └──────┘
type authority struct {
	renewed  time.Time            // the lease
	heard    map[string]time.Time // of the other members, when the last heartbeat was sent that each has answered
	before   time.Time            // when a majority of the members of the views before this one has last answered
	looked   time.Time            // when this node has last looked at its clock
	returned time.Time            // when it has found that it had not for long
	away     bool                 // since authority has ended, the standbys were not heard
	lapses   uint64               // how often this node has looked and found that it had none
	outside  bool                 // the view does not name this node: nothing is its to decide
	member   bool                 // a view has named it
}

// view names the other members. What was heard of those that stay still counts, and for as long as it would have without this
// view, what a majority has said before it: else a node that does not hear from all would be away until who has joined has answered.
//
// member says whether the view names this node. A node that comes back as a member has lapsed.
func (a *authority) view(others []string, member bool) {
	if a.outside && member && a.member {
		a.lapse()
	}
	a.outside, a.member = !member, a.member || member
	if !a.alone() {
		a.before = later(a.before, a.majority())
	}
	old := a.heard
	a.heard = make(map[string]time.Time, len(others))
	for _, id := range others {
		a.heard[id] = old[id]
	}
}

// answered takes note of a heartbeat that a member has answered.
func (a *authority) answered(id string, sent time.Time) {
	if last, member := a.heard[id]; member && sent.After(last) {
		a.heard[id] = sent
	}
}

// look takes note that it is now, and whether authority has ended before. It comes before all
// that prolongs it.
func (a *authority) look(now time.Time) {
	switch {
	case a.alone():
		a.away = false
	case now.Sub(a.looked) >= awayAfter:
		a.returned = now
		a.lapse()
	case !now.Before(a.witnessed()):
		a.lapse()
	}
	a.looked = now
}

func (a *authority) lapse() {
	a.away = true
	a.lapses++
}

// home ends that this node is away, unless it was so again since it had lapsed so often. It
// reports whether it did.
func (a *authority) home(now time.Time, lapses uint64) bool {
	a.look(now)
	if a.lapses != lapses {
		return false
	}
	a.away = false
	return true
}

// due reports whether nothing but the word of the standbys is missing.
func (a *authority) due() bool { return a.away && a.looked.Before(a.witnessed()) }

// returns reports whether this node has been away until just now: for less than so long.
func (a *authority) returns(now time.Time, within time.Duration) bool {
	switch {
	case a.alone():
		return false
	case a.away:
		return now.Sub(a.returned) < within
	default: // and has not noticed yet
		return now.Sub(a.looked) >= awayAfter
	}
}

func (a *authority) alone() bool { return len(a.heard) == 0 }

// until returns when this node ceases to admit unless it looks again, the zero time if it
// never does: if it is alone.
func (a *authority) until() time.Time {
	switch {
	case a.alone():
		return time.Time{}
	case a.away, a.outside:
		return a.looked
	}
	until := a.looked.Add(awayAfter)
	if w := a.witnessed(); w.Before(until) {
		until = w
	}
	return until
}

// witnessed returns until when this node may admit by what its witnesses have said, the zero
// time for ever: if it is alone.
func (a *authority) witnessed() time.Time {
	if a.alone() {
		return time.Time{}
	}
	return later(a.majority(), later(a.renewed, a.before)).Add(authorityTerm)
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// majority returns when a majority of the members, this one included, has last answered.
func (a *authority) majority() time.Time {
	sent := make([]time.Time, 0, len(a.heard))
	for _, t := range a.heard {
		sent = append(sent, t)
	}
	slices.SortFunc(sent, func(x, y time.Time) int { return y.Compare(x) })
	others := (len(sent) + 1) / 2 // of 2 members the other one, of 3 one, of 4 and of 5 two
	return sent[others-1]
}
