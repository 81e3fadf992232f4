package replica

import (
	"github.com/weirlimit/weir/cluster/view"
)

// EventKind says what has happened.
type EventKind uint8

// The events, with the fields that they have.
const (
	Adopt    EventKind = iota + 1 // Claim: a newer view
	Feed                          // From, Number, Version, Acknowledged: all of a copy has arrived, of a sender with the view of that number
	Final                         // From, Term, Version, Acknowledged: the final state of a predecessor, for the owner of that term
	Ended                         // From: a predecessor has ended, as the decision lease says
	Ask                           // From: the owner asks for the final state
	Posted                        // From, Deltas: deltas of a node
	Copied                        // From, Version, Acknowledged: a node has that copy
	Answered                      // From, Number: the owner's standby has this node's deltas up to that one
	Drop                          // memory is wanted
	Resumed                       // the decision lease is valid again
	StandIn                       // On: whether it is to grant from what it has in the place of lives that are gone
	Salvaged                      // Term, Version, Acknowledged: a copy of a node that is no predecessor, for the owner of that term
)

// Event is something that a replica is told.
type Event struct {
	Kind         EventKind
	From         view.Life
	Claim        Claim
	Number       uint64
	Term         uint64
	Version      Version // the zero value: the sender has no copy
	Acknowledged Acknowledged
	Deltas       Deltas
	On           bool
}
