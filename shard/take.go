package shard

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Take is one counter's part of a check, and its decision.
type Take struct {
	// Key names the counter, Limit the limit on it.
	Key   ring.Key
	Limit algorithms.Limit
	// Cost is the number of tokens to take. See algorithms.Step for 0 and less.
	Cost int64
	// Shadow says that a denial of this take denies nothing: the take is counted if it has room, and
	// otherwise the rest of its group goes on without it.
	Shadow bool
	// Tentative says that Return may undo this take soon, unless Keep says that it stays. Later takes of a bucket are remembered, so that
	// it is then as if this take had never been; and a take denied only because of it is Contended, with a
	// Decision that says to retry when that is settled.
	Tentative bool
	// Strict says that the rule asks for strict durability: the answer waits until the standby has the
	// take, except for a tenth of the limit. A Shard ignores it.
	Strict bool
	// Settles says, for Return only, that the take is a node's token lease, known by Decision.At, of which
	// Cost tokens come back; the others were used.
	Settles bool
	// OnFailure says what happens if no node that can decide answers in time.
	OnFailure Policy
	// Leases says that the owner lent tokens to the node that was asked, with the answer. A Shard ignores it.
	Leases bool
	// Shares is among how many nodes the limit is shared if no node that can decide has answered; 0 otherwise. A Shard ignores it.
	Shares uint16

	// Decision and Source are the answer. Decision has no meaning while Source is Undecided, Overloaded or
	// Redirected.
	Decision algorithms.Decision
	Source   Source
	// Contended says that the take is denied only because of tentative takes: it has room if they are undone.
	Contended bool
}

// Group is a set of Takes that is counted whole or not at all.
type Group struct {
	Takes []Take
	// Peek returns the decisions without counting.
	Peek bool
	// Reset resets every counter of the group. Costs are ignored. The decisions are those of a peek
	// afterwards.
	Reset bool
	// Lend is how many tokens the caller asks to lease beyond what the takes cost, and Tokens how many
	// tokens those costs stand for; each cost is a multiple of it. Lend is 0, or Tokens is above 0.
	Lend, Tokens int64
	// ForNode says that a node asks for the token lease, to answer its callers from. It settles the lease
	// by a take that Settles, or by asking for another: then Unused is what is left of the lease of Unused.At,
	// and becomes part of the new one.
	ForNode bool
	Unused  TokenLease
	// Provisional asks for a decision even if this node does not own a partition: a sealed partition
	// answers from its copy, and records what it grants. It then leases no tokens, and resets and gives
	// back leased tokens only where the partition is unsealed.
	Provisional bool
	// Ungated says that the group's counters are this node's own, such as its share of a limit: neither
	// gates nor the decision lease matter.
	Ungated bool
	// LentAt, unless 0, is the TokenLease.At of the tokens that the negative costs give back.
	LentAt int64
	// Deferred, unless 0, says that the group was decided and counted, and that the answer waits for a standby:
	// it is the deciding node's id of the group. A Shard ignores it.
	Deferred uint64
	// By, unless 0, is the mark of the node that has decided the group in the place of the one that was asked.
	// A Shard ignores it.
	By uint64
	// Waits says that the node has counted nothing yet, and should be asked again. A Shard ignores it.
	Waits bool
	// Lost says that the node that was asked does not have a counter of the group, and knows of no other
	// node that has it. A Shard ignores it.
	Lost bool
	// Moved says that the node which was asked does not have a counter of the group yet, and another one does: no copy is to be used. Callers of a shard
	// set it.
	Moved bool

	// Allowed is the decision: every answered Take that is no Shadow had room. If it is false, no Take has
	// consumed anything.
	Allowed bool
	// TokenLease is the caller's lease. The decisions are those after it.
	TokenLease TokenLease
}

// Policy is the failure policy of a Take that no node answers in time.
type Policy uint8

// The failure policies.
const (
	// FailOpen allows it.
	FailOpen Policy = 0
	// FailLocal decides it against this node's share of the limit.
	FailLocal Policy = 1
	// FailClosed denies it.
	FailClosed Policy = 2
)

// Source names the node that decided a Take.
type Source uint8

// The sources. Their numbers travel between nodes: never renumber them.
const (
	// Undecided: no node decided in time.
	Undecided Source = 0
	// Owner: the node that owns the counter.
	Owner Source = 1
	// Local: the receiving node by its share of the limit, because no other node answered.
	Local Source = 2
	// Overloaded: none, because too many checks wait already, or the answer was late because of that. It
	// counts as a denial.
	Overloaded Source = 3
	// Lent: the receiving node, from tokens leased from the owner.
	Lent Source = 4
	// Redirected: none, because the counter's partition is sealed here; another node owns it.
	Redirected Source = 5
	// Relayed: the owner, asked by a relay: its standby or another member.
	Relayed Source = 6
	// Provisional: the standby, from its copy. It sends the owner what it has granted.
	Provisional Source = 7
	// Deferred: the owner, but its answer waits for the standby. No decision ends so.
	Deferred Source = 8
)
