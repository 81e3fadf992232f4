package cluster

// The token of a partition is the right to admit for it, with its counters. At most one
// node holds it active. It moves by a seal: the holder stops to admit, bound to one party,
// and what it then says installs the token there under a higher generation. A seal is
// never undone, but by a view that fences it. If the holder is gone, a view names a new
// epoch, in which the owner makes the token anew; whatever was held of the old one is no
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
// token.go is pure: ownership.go drives it, and TestSearchTokens searches it.

// Generation orders the tokens of one partition: the epoch in which it was made, and how
// often it was sealed since.
type Generation uint64

// sealBits of a Generation count seals.
const sealBits = 24

// firstOf returns the generation with which an epoch begins, the number of a view.
func firstOf(epoch uint64) Generation { return Generation(epoch << sealBits) }

// party is one life of a node: what is said to it is not said to its successor.
type party struct {
	id          string
	incarnation uint64
}

// claim is what a view says about one partition.
type claim struct {
	view  uint64 // its number
	epoch uint64 // of the token that counts; the number of the view that has begun it
	base  uint64 // the epoch before, 0 if there was none
	owner party  // who is to hold the token
}

// token is what one node knows of a partition's token. The zero value is that of a node
// that has just started.
type token struct {
	state   tokenState
	gen     Generation // of what is held
	seen    Generation // the highest that this node knows of
	to      party      // whom it is sealed for
	creates Generation // what this node, and no other, may make anew; 0 for nothing
}

type tokenState uint8

const (
	absent tokenState = iota
	active
	sealed
)

// adopt takes note of a newer view. A token from before its epoch is fenced; but an owner
// who holds it as the epoch begins holds it on, since nobody else may make the new one.
func (t *token) adopt(c claim, self party) {
	least := firstOf(c.epoch)
	begins := c.view == c.epoch && c.owner == self
	switch {
	case t.state == active && t.gen < least && begins && t.gen >= firstOf(c.base):
		t.hold(least)
		return
	case t.state != absent && t.gen < least:
		t.state, t.to = absent, party{}
	}
	if begins && t.seen < least {
		t.creates = least
	}
}

// seal gives the token away, for a party that the view names as owner. Whoever asks again
// gets the same answer.
func (t *token) seal(c claim, to party) (gen Generation, ok bool) {
	switch {
	case t.state == sealed && t.to == to:
		return t.gen, true
	case t.state != active || c.owner != to || t.gen < firstOf(c.epoch):
		return 0, false
	}
	t.state, t.to = sealed, to
	t.gen++
	t.seen = max(t.seen, t.gen)
	return t.gen, true
}

// install takes the token that was sealed for this node. It reports whether it is held
// now, and whether that is new.
func (t *token) install(c claim, gen Generation) (held, fresh bool) {
	switch {
	case t.state == active:
		return t.gen == gen, false
	case gen <= t.seen || gen < firstOf(c.epoch):
		return false, false
	}
	t.hold(gen)
	return true, true
}

// confirm drops the token, which the other side holds.
func (t *token) confirm(gen Generation) (dropped bool) {
	if t.state != sealed || t.gen != gen {
		return false
	}
	t.state, t.to = absent, party{}
	return true
}

// mayCreate reports whether this node is the one to make the token anew, and has not.
func (t *token) mayCreate(c claim) bool {
	least := firstOf(c.epoch)
	return t.state == absent && t.creates == least && t.seen < least
}

// create makes the token anew.
func (t *token) create(c claim) (ok bool) {
	if !t.mayCreate(c) {
		return false
	}
	t.hold(firstOf(c.epoch))
	return true
}

// forgo leaves it to later views to have the token made anew.
func (t *token) forgo() { t.creates = 0 }

// lapse ends a token that others could not know of: what is held is no more than a copy.
func (t *token) lapse() { t.state, t.to = absent, party{} }

func (t *token) hold(gen Generation) {
	t.state, t.gen, t.to = active, gen, party{}
	t.seen = max(t.seen, gen)
}
