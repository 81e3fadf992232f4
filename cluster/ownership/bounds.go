package ownership

import "time"

// Times of what is sent to another node.
const (
	feedEvery   = 100 * time.Millisecond // how often changes are looked for
	hurryEvery  = 2 * time.Millisecond   // the least pause between feeds
	callTimeout = 500 * time.Millisecond // of one call
)

// Bounds of feeds.
const (
	followers    = 2         // nodes that are fed one partition: the standby, and a learner
	recordBytes  = 32 << 10  // of one message, about
	messageBytes = 128 << 10 // of the messages of one call, about
	copyBytes    = 12 << 10  // of these, of copies that are not complete, for each copyWay that a call takes at least
	feedRest     = 2         // times as long as nodes worked for a call, before the next one of what is more than a call has room for
	copyTurn     = 256       // messages of one copy in a row, at least: others need not wait for one that changes faster than it is sent
	copyRest     = 8         // times as long, before the next one with copies that are not complete
	feedRestMost = 100 * time.Millisecond
	copyRestMost = 10 * time.Millisecond // under full load: a standby must not lack a copy for long
	copyWay      = 500 * time.Microsecond
)

// Bounds of a partition's deltas. What is granted beyond them stays in the shard, which has a bound of its own.
const (
	maxBatches      = 16  // that the owner may not have yet
	maxHeardBatches = 32  // the same, if another node has asked for all
	batchSize       = 500 // grants of one
)
