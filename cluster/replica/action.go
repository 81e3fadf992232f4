package replica

import (
	"github.com/weirlimit/weir/cluster/view"
)

// ActionKind says what a driver is to do.
type ActionKind uint8

// The actions, with the fields that they have.
const (
	Install    ActionKind = iota + 1 // replace the counters by those that came with the event
	AddDeltas                        // To, Deltas: add these deltas of that grantor to the counters
	TrimDeltas                       // Number: forget own deltas below that number
	SendFinal                        // To, Term, Version, Acknowledged: send the counters to the owner of that term
	SendAnswer                       // To, Number: tell a node up to which of its deltas are in the standby's copy
	Discard                          // forget the counters
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
