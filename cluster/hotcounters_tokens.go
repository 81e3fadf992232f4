package cluster

import (
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// borrowed is what a node has been lent of a counter: one lease, in which what is left of those before
// it goes on.
type borrowed struct {
	after                algorithms.Decision // of the lease, and after it; its Remaining counts what is lent
	afterSent, leaseEnds int64               // when it was asked for, and until when it may be used
	untilAt              int64               // of a window: when that ends, by the owner's clock
	heard, fresh         int64               // when the owner was last asked, and how long it need not be again
	paced, pacedAt       int64               // what remained by an earlier decision of the owner, and when that was
	lent, left           int64               // tokens in the lease and unused ones; 0 <= left <= lent
	seen, seenAt         int64               // what remained by the owner's last decision that was not about a lease, and when that was
	rest                 int64               // those that the owner was told are left, if it is being asked to renew the lease
	inheritedEnds        int64               // until when that may be used of it which an owner before this one has lent; 0 if nothing
	telling              bool                // the owner is being told that rest is left
	floor, floorEnds     int64               // the least that this node has said since a report was lost, and until when it says no more; of a window
	unreported           int64               // the owner may count as remaining what this node has used, in answers to what was asked before
	owed                 bool                // the owner has it in its account, where it is known by after.At
	used                 bool                // since the last sweep
}

// asking returns what the owner is to know of the lease when it is asked for another. One that is over does not go
// on.
func (b *borrowed) asking(instant int64) shard.TokenLease {
	if !b.owed || instant >= b.leaseEnds {
		return shard.TokenLease{}
	}
	b.rest = b.left
	return shard.TokenLease{Tokens: b.left, At: b.after.At}
}

// A node says that as much remains as the owner has said last, less what the node has used of its lease since the owner
// was told of it. The owner counts all of the lease as remaining that it does not know to be used. So what the owner says
// never rises within a window, except for what comes back: takes lower it, and lending and reports of use do not raise
// it. Hence what the node says does not rise either. Let S be the owner's number when the node had L tokens left, and let l
// be left now, so that the node says S-(L-l). At the next report the owner learns of L-r used tokens. Its next number is
// S' <= S-(L-r), and the node says S'-(r-l) <= S-(L-l). So each answer of the
// owner leaves out what the node has used, whether or not the counter was hot when it was asked.

// known returns how many tokens of the lease the owner counts as remaining, or will once it has answered.
func (b *borrowed) known() int64 {
	if b.telling {
		return b.rest
	}
	return b.lent
}

// reported records that the owner knows that rest is left, although it has lent no more.
func (b *borrowed) reported() {
	b.after.Remaining -= b.lent - b.rest
	b.lent = b.rest
}

// heed records what remains by a decision of the owner, which counts all of the lease as remaining if it was
// allowed, and nothing if not.
func (b *borrowed) heed(d *algorithms.Decision) {
	remaining := d.Remaining
	if !d.Allowed {
		remaining += b.known()
	}
	b.after.Remaining = min(b.after.Remaining, remaining+b.lent-b.known())
	if d.Allowed && (d.At > b.seenAt || d.At == b.seenAt && remaining < b.seen) { // answers of one instant come in any order
		b.seen, b.seenAt = remaining, d.At
	}
	b.measure(d.At, remaining)
}

// tell has t, which the owner was asked for at the instant sent and has allowed, say what this node says remains.
func (b *borrowed) tell(t *shard.Take, sent int64) {
	if !t.Decision.Allowed || b.untilAt != 0 && t.Decision.At >= b.untilAt {
		return
	}
	if sent < b.unreported {
		t.Decision.Remaining = max(0, min(t.Decision.Remaining, b.after.Remaining-(b.lent-b.left)))
	}
	t.Decision.Remaining = b.atMostFloor(t.Decision.Remaining, sent)
}

// measure sets how long the owner need not be asked again: until as many tokens are likely taken as this node has on
// lease, so that what it says remains is not further off than that.
func (b *borrowed) measure(at, remaining int64) {
	took := at - b.pacedAt
	if took < int64(paceOver) && took >= 0 {
		return
	}
	b.fresh = freshFor
	if fell := b.paced - remaining; fell > 0 && took < int64(time.Second) {
		b.fresh = min(freshFor, int64(float64(took)/float64(fell)*float64(b.lent)))
	}
	b.paced, b.pacedAt = remaining, at
}

// stale reports whether others may have taken so much that it is time to ask the owner, or the owner has said something since
// that this node has not kept. Close to the end of the limit what is lent is used first, or else others would be denied
// for it.
func (b *borrowed) stale(instant int64, unheard bool) bool {
	last := b.after.Remaining-(b.lent-b.left) < b.lent+max(b.lent, lastTokens)
	return instant-b.heard > freshFor || (unheard || instant-b.heard > b.fresh) && !last
}

func (b *borrowed) spend(t *shard.Take, instant int64) {
	b.left -= t.Cost
	b.used = true
	d := b.after
	d.At += instant - b.afterSent
	d.Remaining = b.atMostFloor(max(0, d.Remaining-(b.lent-b.left)), instant)
	d.ResetAt, d.RetryAt = max(d.ResetAt, d.At), d.At
	t.Decision, t.Source = d, shard.Lent
}

// borrow takes a lease that was asked for at sent and came now. What is left of the one before goes on in it if the
// owner has seen that, too: then both are of one window, and as this node's clock is not past the old one's end, which
// comes earlier here, the owner's was not. If not, it returns what is to be settled of that.
func (b *borrowed) borrow(t *shard.Take, lease shard.TokenLease, sent, now int64) (old []shard.Take) {
	untilAt, told := int64(0), int64(algorithms.Never)
	if !t.Limit.Algorithm.Drains() {
		untilAt = algorithms.LentUntil(&t.Limit, &t.Decision)
	}
	if untilAt != b.untilAt {
		b.floorEnds = 0
	}
	ends := sent + lease.Until - lease.At
	switch goesOn := sent < b.leaseEnds && now < b.leaseEnds && untilAt == b.untilAt; {
	case goesOn && b.owed:
		b.lent, b.left = b.rest+lease.Tokens, b.left+lease.Tokens
	case goesOn && b.left > 0: // the owner knows nothing of it: it is used first, and not given back
		b.inheritedEnds = b.leaseEnds
		b.lent, b.left = b.left+lease.Tokens, b.left+lease.Tokens
	default:
		if b.owed {
			old = []shard.Take{b.take(t.Key, t.Limit)}
			if untilAt > 0 && untilAt == b.untilAt { // the owner does not know yet what was used of it
				told = b.after.Remaining - (b.lent - b.left)
			}
		}
		b.inheritedEnds, b.lent, b.left = 0, lease.Tokens, lease.Tokens
	}
	if b.inheritedEnds > 0 {
		ends = min(ends, b.inheritedEnds)
	}
	b.after, b.afterSent, b.untilAt, b.leaseEnds, b.unreported = t.Decision, sent, untilAt, ends, ends
	b.after.Remaining = min(b.after.Remaining, told)
	if b.seenAt >= t.Decision.At { // it was asked for later, and came earlier
		b.after.Remaining = min(b.after.Remaining, b.seen)
	}
	b.owed, b.used = true, true
	b.measure(t.Decision.At, t.Decision.Remaining)
	return old
}

// take returns what is to be said to settle the lease.
func (b *borrowed) take(k ring.Key, l algorithms.Limit) shard.Take {
	return shard.Take{Key: k, Limit: l, Cost: b.left, Settles: true, Decision: algorithms.Decision{At: b.after.At}}
}

// lostReport records that the owner may have been told what is left, or not: then it counts as remaining what was used until
// the lease is over, which it knows by another instant than this node if it was told.
func (b *borrowed) lostReport() {
	if b.owed && b.untilAt > 0 {
		b.floor, b.floorEnds = max(0, b.after.Remaining-(b.lent-b.left)), b.leaseEnds
	}
	b.owed = false
}

// atMostFloor returns what this node says remains, which is no more than remaining.
func (b *borrowed) atMostFloor(remaining, instant int64) int64 {
	if instant >= b.floorEnds {
		return remaining
	}
	b.floor = min(b.floor, remaining)
	return b.floor
}

// settled records that the owner learns of all that was used before it decides what is asked from now on.
func (b *borrowed) settled(now int64) {
	b.after.Remaining -= b.lent - b.left
	b.owed, b.lent, b.left, b.inheritedEnds, b.unreported = false, 0, 0, 0, now
}
