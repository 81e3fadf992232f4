package cluster

// The tenure of a partition is the right to decide for it, with its counters. At most one
// node holds it active. It moves by a seal: the owner stops to decide, bound to one party,
// and what it then says installs the tenure there under a higher term. A seal is
// never undone, except by a view that fences it. If the owner is gone, a view names a new
// epoch, in which the owner creates the tenure again; what was held of the old one is no
// more than a copy then.
//
//	            seal                  confirm
//	┌────────┐ ───────► ┌────────┐ ────────────► ┌────────┐
//	│ active │          │ sealed │               │ absent │
//	└────────┘          └────────┘ ────────────► └────────┘
//	   ▲  │                            fenced      ▲   │
//	   │  └────────────────────────────────────────┘   │
//	   └───────────────────────────────────────────────┘
//	                   install, create
//
// tenure.go is pure: ownership.go drives it, and TestSearchTenures searches it.

// Term orders the tenures of one partition: the epoch in which it was made, and how
// often it was sealed since.
type Term uint64

// sealBits of a Term count seals.
const sealBits = 24

// firstOf returns the term with which an epoch begins, the number of a view.
func firstOf(epoch uint64) Term { return Term(epoch << sealBits) }

// party is one life of a node: what is said to it is not said to its successor.
type party struct {
	id          string
	incarnation uint64
}

// claim is what a view says about one partition.
type claim struct {
	view  uint64 // its number
	epoch uint64 // of the tenure that counts; the number of the view that has begun it
	base  uint64 // the epoch before, 0 if there was none
	owner party  // the node that is to hold the tenure
}

// tenure is what one node knows of a partition's tenure. The zero value is that of a node
// that has just started.
type tenure struct {
	state   tenureState
	term    Term  // of what is held
	seen    Term  // the highest that this node knows of
	to      party // whom it is sealed for
	creates Term  // the term that this node, and no other, may create; 0 for nothing
}

type tenureState uint8

const (
	absent tenureState = iota
	active
	sealed
)

// adopt records a newer view. A tenure from before its epoch is fenced; but an owner
// that holds it as the epoch begins holds it on, since no other node may create the new one.
func (t *tenure) adopt(c claim, self party) {
	least := firstOf(c.epoch)
	begins := c.view == c.epoch && c.owner == self
	switch {
	case t.state == active && t.term < least && begins && t.term >= firstOf(c.base):
		t.hold(least)
		return
	case t.state != absent && t.term < least:
		t.state, t.to = absent, party{}
	}
	if begins && t.seen < least {
		t.creates = least
	}
}

// seal gives the tenure away, for a party that the view names as owner. A caller that asks again
// gets the same answer.
func (t *tenure) seal(c claim, to party) (term Term, ok bool) {
	switch {
	case t.state == sealed && t.to == to:
		return t.term, true
	case t.state != active || c.owner != to || t.term < firstOf(c.epoch):
		return 0, false
	}
	t.state, t.to = sealed, to
	t.term++
	t.seen = max(t.seen, t.term)
	return t.term, true
}

// install takes the tenure that was sealed for this node. It reports whether it is held
// now, and whether that is new.
func (t *tenure) install(c claim, term Term) (held, fresh bool) {
	switch {
	case t.state == active:
		return t.term == term, false
	case term <= t.seen || term < firstOf(c.epoch):
		return false, false
	}
	t.hold(term)
	return true, true
}

// confirm drops the tenure, which the other side holds.
func (t *tenure) confirm(term Term) (dropped bool) {
	if t.state != sealed || t.term != term {
		return false
	}
	t.state, t.to = absent, party{}
	return true
}

// mayCreate reports whether this node is the one to create the tenure of the epoch, and has not.
func (t *tenure) mayCreate(c claim) bool {
	least := firstOf(c.epoch)
	return t.state == absent && t.creates == least && t.seen < least
}

// create makes the tenure of the epoch.
func (t *tenure) create(c claim) (ok bool) {
	if !t.mayCreate(c) {
		return false
	}
	t.hold(firstOf(c.epoch))
	return true
}

// forgo leaves it to later views to have the tenure created again.
func (t *tenure) forgo() { t.creates = 0 }

// lapse ends a tenure that others could not know of: what is held is no more than a copy.
func (t *tenure) lapse() { t.state, t.to = absent, party{} }

func (t *tenure) hold(term Term) {
	t.state, t.term, t.to = active, term, party{}
	t.seen = max(t.seen, term)
}
