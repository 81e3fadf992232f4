package ownership

import (
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// receiving is what a node gets of one partition from others.
type receiving struct {
	feed   intake  // of the node that has fed it last
	search salvage // search.since is zero unless replica.State == Waiting
	given  given   // zero except while a final state is taken over
}

// intake is how far a feed has been taken. The zero value is that of none.
type intake struct {
	from           view.Life
	session, index uint64 // of the last message
	// partial says that records were laid over the copy that are not all of a later version, apart that grants of others were added to it that are not among
	// those of its version, and may be in it until it is fed as a whole.
	partial, apart bool
}

// isNext reports whether changes follow those that were taken last, where the copy has that version; else what to answer.
func (at *intake) isNext(from view.Life, m *Changes, version replica.Version) (isNext bool, receipt Receipt) {
	continues := at.from == from && at.session == m.Session
	switch {
	case at.from == from && m.Session < at.session, continues && m.Index <= at.index:
		return false, Taken // it was before, or a later one was
	case m.Index != 1 && !(continues && m.Index == at.index+1):
		return false, Again
	case m.Index == 1 && m.Base != (replica.Version{}) && (m.Base != version || at.partial || at.apart):
		return false, Again
	}
	return true, Taken
}

// given is a final state that the node goes on from, as it is the only one. The predecessor that gave it still has it: if it is the standby now, all that
// it lacks is what changes from then on.
type given struct {
	by      view.Life
	version replica.Version
}

// givenFollower is the follower of the shard that is the one that has given a final state.
const givenFollower = shard.ToStandby

// isOf reports whether the feed of follower f, to a node, can go on from what that has given.
func (g *given) isOf(f shard.Follower, to view.Life) bool { return g.by == to && f == givenFollower }

// salvage is how far the search for the best copy is. The zero value is that of none.
type salvage struct {
	restored bool        // the copy is from a snapshot
	since    time.Time   // when it began, or the last has answered; the zero time if this node does not wait as an owner without a copy
	isDone   bool        // all members that were reached have answered, and none has a later copy
	asked    []view.Life // the members that have answered
	best     view.Life   // the one with the latest copy, if that is later than this node's
	version  replica.Version
}
