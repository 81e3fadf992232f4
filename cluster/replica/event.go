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
}

// ActionKind says what a driver is to do.
type ActionKind uint8

// The actions, with the fields that they have.
const (
	Install       ActionKind = iota + 1 // replace the counters by those that came with the event
	AddDeltas                           // To, Deltas: add these deltas of that grantor to the counters
	TrimDeltas                          // Number: forget own deltas below that number
	SendFinal                           // To, Term, Version, Acknowledged: send the counters to the owner of that term
	SendAnswer                          // To, Number: tell a node up to which of its deltas are in the standby's copy
	ReportSettled                       // Term: the owner decides
	Discard                             // forget the counters
)

// Action is something that a driver is to do.
type Action struct {
	Kind         ActionKind
	To           view.Life
	Number       uint64
	Term         uint64
	Version      Version
	Acknowledged Acknowledged
	Deltas       Deltas
}
