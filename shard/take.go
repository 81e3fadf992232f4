package shard

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Take is one question to one counter, and its answer.
type Take struct {
	// Key says which counter, Limit what it is held against.
	Key   ring.Key
	Limit algorithms.Limit
	// Cost is the number of tokens asked for. See algorithms.Step for 0 and less.
	Cost int64
	// Shadow says that a denial of this take denies nothing: it is counted if it
	// has room, and otherwise the rest of its group goes on without it.
	Shadow bool
	// Tentative says that Return may undo this take soon: what comes after it is
	// remembered, so that a bucket is then as if it had never been.
	Tentative bool
	// Strict says that the rule asks for strict durability: what was taken is told to nobody
	// before the standby has it, but for a tenth of the limit. It means nothing to a Shard.
	Strict bool
	// OnFailure says what happens if nobody who could decide answers in time.
	OnFailure Policy

	// Decision and Source are the answer. Decision means nothing while Source is
	// Unanswered, Overloaded or Moved.
	Decision algorithms.Decision
	Source   Source
}

// Group is a set of Takes that is counted whole or not at all.
type Group struct {
	Takes []Take
	// Peek asks what the answer would be and counts nothing.
	Peek bool
	// Reset makes every counter of the group a fresh one, whatever the costs. The
	// answers are those to a look at it afterwards.
	Reset bool
	// Lend is how many tokens the caller would like to be lent beyond what the takes
	// cost, and Tokens how many tokens those costs stand for; each is a multiple of it.
	// Lend is 0, or else Tokens above 0.
	Lend, Tokens int64
	// Provisional asks this node for an answer although it may not be the one that decides: a
	// partition that is closed answers from its copy, and keeps apart what it grants. It
	// lends nothing so, and resets and gives back loans only where the gate is open.
	Provisional bool
	// Ungated says that the group's counters are this node's own, such as its share of a
	// limit: no gate and no authority matters.
	Ungated bool
	// LentAt, unless 0, is the Loan.At of the tokens that the negative costs give back.
	LentAt int64
	// Held, unless 0, says that the group was decided and counted, and that the answer waits for a
	// standby: it is what the node that has decided knows the group by. It means nothing to a Shard.
	Held uint64
	// Waits says that whoever was asked has counted nothing, and is to be asked again. It means nothing to a Shard, either.
	Waits bool

	// Allowed is the answer: every Take that was answered and is no Shadow had
	// room. If it is false, no Take has consumed anything.
	Allowed bool
	// Loan is what the caller is lent. The decisions are those after it.
	Loan Loan
}

// Policy says what becomes of a Take that nobody answers in time.
type Policy uint8

// The failure policies.
const (
	// FailOpen lets it through.
	FailOpen Policy = 0
	// FailLocal decides it against this node's share of the limit.
	FailLocal Policy = 1
	// FailClosed denies it.
	FailClosed Policy = 2
)

// Source says who decided a Take.
type Source uint8

// The sources. Their numbers travel between nodes: never renumber them.
const (
	// Unanswered: nobody decided in time.
	Unanswered Source = 0
	// Owner: the node that owns the counter.
	Owner Source = 1
	// Local: the asked node by its share of the limit, because nobody else answered.
	Local Source = 2
	// Overloaded: nobody was asked, because too much is waiting already, or the answer
	// was late because of that. It counts as a denial.
	Overloaded Source = 3
	// Lent: the asked node, from tokens that the owner has lent it.
	Lent Source = 4
	// Moved: nobody, because the counter's partition is closed here. Somebody else has it.
	Moved Source = 5
	// Standby: the node that stands by for the owner, which it has asked.
	Standby Source = 6
	// Provisional: the node that stands by, from its copy. The owner is told what it has granted.
	Provisional Source = 7
	// Held: the node that owns the counter, but its answer waits for the standby. No decision ends so.
	Held Source = 8
)
