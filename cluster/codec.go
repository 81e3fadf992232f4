package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// Bounds of what travels between two nodes.
const (
	maxFrame      = 256 << 10 // bytes of one frame of requests
	maxAnswers    = 512 << 10 // bytes of one frame of answers: each may be longer than its request by a half
	maxDirect     = 16 << 10  // bytes of a frame that the goroutine of the check sends itself
	maxQueue      = 1 << 20   // bytes that wait to be sent on one conn
	maxPending    = 16 << 10  // requests in flight on one conn
	deliverAtOnce = 64        // answers that are written while others wait for the conn
	maxUnacked    = 1         // frames under way on one conn
	keepBytes     = 128 << 10 // bytes of a frame that a conn keeps room for
	maxTakes      = 1 << 10   // takes of one group
	maxCalendar   = 64        // bytes of a calendar's text
)

// A frame is connVersion in a byte and then items without padding. Integers are
// unsigned LEB128 varints (u), zigzag varints (z) or little-endian.
//
//	request: op byte, id uint32, takes u, then per take:
//	          key.hi uint64, key.lo uint64, algorithm byte, flags byte, limit u, window u, cost z,
//	          each with its flag only, and above 0: burst u, maxDelay u, buckets u,
//	          with flagCalendar, and then without window: length u, as many bytes of text,
//	          and for opReturn and opKeep: at u;
//	          then for opLend and opHot: lend u, tokens u, and for a node: 1 + rest.at u, with rest.at
//	          above 0: rest.tokens u, or else: 0; and for opGiveBack: at u
//	          and for opDeferred: deferred u; and for opReturn with opStandby: mark
//	sent:     opSent byte, stamp uint32
//	due:      opDue byte, stamp uint32
//	trace:    opTrace byte, trace id 16 bytes, span id 8 bytes, trace flags byte
//	answer:   id uint32, flags byte, takes u, with flagLent: tokens u, for u,
//	          with flagDeferred: deferred u, with flagWait: wait u, with flagRelayed or flagProvisional: mark,
//	          with flagRedirect: redirected u, and as often: index u, mark uint64,
//	          or else per take: flags byte, remaining u, at u, resetAt-at z,
//	          with flagRetry: retryAt-at z, with flagDelay, and above 0: delay u
//	mark:     byte, and if that is 1: uint64
//
// The mark is of the node that has decided in the place of the one that was asked, and byte 0 is none. What is given
// back goes to that node, by the one that was asked if the asker does not reach it.
//
// Every request but opReturn and opKeep is answered, a ping by an answer without takes; only
// a ping has none. An answer to a ping that does not allow says that the node is busy, whether or not it was asked. With flagWait or flagRedirect no decision is given, and the answer says how many
// takes the request has, and nothing of each. With flagRedirect it says which of them live
// elsewhere, by index, and with whom, by markOf; 0 is unknown. Decisions with flagDeferred are to be
// asked for by deferred with opDeferred until an answer says deferred 0, which has no decisions any more.
//
// A frame of requests begins with the instant at which it was sent, and due says when the asker gives up the
// requests that follow, both by the asker's clock. A check that the owner reads later is not counted. A trace says, as W3C
// Trace Context does, to which span of the asker the requests that follow belong; zeros are none. Frames for nodes of
// revision 0, and frames without traced requests, have none.

type op byte

const (
	opDecide op = 1 // decide a group and count it
	opPeek   op = 2 // decide a group and count nothing
	opReturn op = 3 // give back what a group has counted
	opPing   op = 4 // answer at once
	opReset  op = 5 // forget a group's counters

	opLend     op = 6 // decide a group, count it, and lend more of the same
	opHot      op = 7 // likewise, for one take, and with a denial lease
	opGiveBack op = 8 // give back what is left of a lease
	opDeferred op = 9 // say whether a decision that was given before may be told

	opSent op = 10 // no request: when the frame was sent
	opDue  op = 11 // no request: when the asker gives up the requests that follow

	opKeep op = 12 // do not expect opReturn for what a group has counted tentatively

	opTrace op = 13 // no request: the span of the requests that follow; since revision 1

	// opStandby with another op asks the standby, because the owner does not answer. With opReturn it says that the
	// takes were decided from a copy.
	opStandby op = 1 << 7
	// opRelay with another op asks for a node that was asked as a standby. It is forwarded only to the node that
	// decides. With opReturn it says that the owner has decided the takes, and that the receiver is it, or has asked it.
	opRelay op = 1 << 6
	// opRoles are the bits of both. Together, with opReturn only, they say that another node has passed it on.
	opRoles = opStandby | opRelay
)

// namesDecider reports whether it gives back what a node may have decided in the place of the one that was asked. Its
// mark follows then.
func (o op) namesDecider() bool {
	return o == returnOf(shard.Provisional) || o == returnOf(shard.Relayed)
}

// opOf returns what is asked about g.
func opOf(g *shard.Group) op {
	switch {
	case g.Deferred > 0:
		return opDeferred
	case g.Reset:
		return opReset
	case g.Peek:
		return opPeek
	case g.Lend > 0:
		return opLend
	case g.LentAt > 0:
		return opGiveBack
	default:
		return opDecide
	}
}

// forStandby reports whether a standby may be asked for it.
func (o op) forStandby() bool {
	switch o {
	case opDecide, opPeek, opReturn, opReset, opGiveBack:
		return true
	default:
		return false
	}
}

// ops are the bits that say in which role a node is asked.
var ops = [...]op{asOwner: 0, asStandby: opStandby, asRelay: opRelay}

// of returns how what o asks the owner for is asked so. Standbys lend nothing.
func (o op) of(how role) op {
	if how != asOwner && o == opLend {
		o = opDecide
	}
	return o | ops[how]
}

// role returns as what o is asked. It has not both bits of opRoles.
func (o op) role() role { return role(slices.Index(ops[:], o&opRoles)) }

// returnOf says how a node is told of what it has decided, or had decided, by that source.
func returnOf(by shard.Source) op {
	switch by {
	case shard.Provisional:
		return opReturn | opStandby
	case shard.Relayed:
		return opReturn | opRelay
	case shard.Redirected:
		return opReturn | opRoles
	default:
		return opReturn
	}
}

// countedBy is the inverse of returnOf. What the owner has decided has no source.
func (o op) countedBy() shard.Source {
	switch o & opRoles {
	case opStandby:
		return shard.Provisional
	case opRelay:
		return shard.Relayed
	case opRoles:
		return shard.Redirected
	default:
		return shard.Undecided
	}
}

// role says as what a node is asked, and so how often what it is asked may still be forwarded.
type role uint8

const (
	asOwner   role = iota // as the node that decides
	asStandby             // because the node that decides does not answer, or there is none
	asRelay               // for a node that was asked as a standby
)

// forwards are by role: a standby may forward to a relay, and a relay to the owner.
var forwards = [...]int{asOwner: 0, asStandby: 2, asRelay: 1}

// mayForward reports whether a node that was asked as what how says may ask another one as what to says: that one may
// forward less often.
func (how role) mayForward(to role) bool { return forwards[to] < forwards[how] }

// pingID is the id of every ping, and of no request that is answered.
const pingID = 0

// Flags of a take that is asked for.
const (
	flagShadow   = 1 << iota
	flagBurst    // the limit has a Burst
	flagMaxDelay // and so on
	flagBuckets
	flagCalendar
	flagTentative
	flagStrict
	flagSettles               // of opReturn: what is left of a node's lease
	takeFlags   = 1<<iota - 1 // all of them
)

// Flags of an answer.
const (
	flagGroup       = 1 << iota // the group is allowed
	flagDenialLease             // the denial stays until its RetryAt, except by takes that wait for maxDenialLease
	flagLent                    // something is lent
	flagWait                    // to be asked again later
	flagRedirect                // another node has counters of the group
	flagRelayed                 // a relay has asked the owner
	flagProvisional             // the standby has decided from its copy
	flagDeferred                // the decisions wait for the standby; or, with 0, no longer
	answerFlags     = 1<<iota - 1
)

// Flags of an answered take.
const (
	flagAllowed   = 1 << iota // it had room
	flagRetry                 // it was denied, and waiting helps
	flagDelay                 // it has to wait for its turn
	flagContended             // it was denied, and has room without the tentative takes of others
	decisionFlags = 1<<iota - 1
)

var errShort = errors.New("frame ends within an item")

// Bytes of an item that says an instant, and of one that names a span.
const (
	stampSize = 1 + 4
	traceSize = 1 + 16 + 8 + 1
)

// appendStamp appends an item that says an instant.
func appendStamp(b []byte, o op, at stamp) []byte {
	return binary.LittleEndian.AppendUint32(append(b, byte(o)), uint32(at))
}

// appendTrace appends an item that names a span; nil is none.
func appendTrace(b []byte, span *trace.SpanContext) []byte {
	if span == nil {
		span = new(trace.SpanContext)
	}
	of, id := span.TraceID(), span.SpanID()
	b = append(append(append(b, byte(opTrace)), of[:]...), id[:]...)
	return append(b, byte(span.TraceFlags()))
}

func appendAboveZero(b []byte, v int64) []byte {
	if v <= 0 {
		return b
	}
	return binary.AppendUvarint(b, uint64(v))
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// reader takes a frame apart. Its methods return zero once err is set.
type reader struct {
	frame    []byte
	at       int // of the next byte
	err      error
	sent     stamp                // when the frame was sent; 0 if it does not say
	due      stamp                // of the requests from here on; 0 if the frame does not say
	span     *trace.SpanContext   // of the asker, of the requests from here on; nil if they are not traced
	calendar *algorithms.Calendar // the last one; takes of one frame often have the same
	limit    *algorithms.Limit    // the last valid one, likewise; nil before
}

func openFrame(frame []byte) reader {
	r := reader{frame: frame}
	if v := r.byte(); r.err == nil && v != connVersion {
		r.err = connVersionError{uint64(v)}
	}
	return r
}

// more reports whether there is another item to read.
func (r *reader) more() bool { return r.err == nil && r.at < len(r.frame) }

// preamble reads all that is said of the next request before it.
func (r *reader) preamble() {
	for r.more() {
		switch op(r.frame[r.at]) {
		case opSent:
			r.byte()
			r.sent = stamp(r.uint32())
		case opDue:
			r.byte()
			r.due = stamp(r.uint32())
		case opTrace:
			r.byte()
			r.trace()
		default:
			return
		}
	}
}

// trace reads which span the requests from here on belong to.
func (r *reader) trace() {
	var c trace.SpanContextConfig
	copy(c.TraceID[:], r.fixed(len(c.TraceID)))
	copy(c.SpanID[:], r.fixed(len(c.SpanID)))
	c.TraceFlags, c.Remote = trace.TraceFlags(r.byte()), true
	span := trace.NewSpanContext(c)
	switch {
	case span.IsValid():
		r.span = &span
	case c.TraceID.IsValid() || c.SpanID.IsValid() || c.TraceFlags != 0:
		r.fail(fmt.Errorf("trace: %s has the span %s", c.TraceID, c.SpanID))
	default:
		r.span = nil
	}
}

func (r *reader) fixed(n int) []byte {
	if len(r.frame)-r.at < n {
		r.fail(errShort)
	}
	if r.err != nil {
		return make([]byte, n)
	}
	at := r.at
	r.at += n
	return r.frame[at:r.at]
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *reader) byte() byte     { return r.fixed(1)[0] }
func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.fixed(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.fixed(8)) }

// varint reads an unsigned varint that must not be above most.
func (r *reader) varint(what string, most int64) int64 {
	v, n := binary.Uvarint(r.frame[r.at:])
	switch {
	case r.err != nil:
		return 0
	case n <= 0:
		r.fail(errShort)
		return 0
	case v > uint64(most):
		r.fail(fmt.Errorf("%s: %d is above %d", what, v, most))
		return 0
	}
	r.at += n
	return int64(v)
}

// zigzag reads a signed varint.
func (r *reader) zigzag() int64 {
	v, n := binary.Varint(r.frame[r.at:])
	if n <= 0 {
		r.fail(errShort)
	}
	if r.err != nil {
		return 0
	}
	r.at += n
	return v
}

// flags reads a byte that must have no other bits than known.
func (r *reader) flags(what string, known byte) byte {
	v := r.byte()
	if v&^known != 0 {
		r.fail(fmt.Errorf("%s: flags %#x have more than the known %#x", what, v, known))
	}
	return v
}

// optional reads a varint that is there and above 0 if its flag is set.
func (r *reader) optional(what string, set bool, most int64) int64 {
	if !set {
		return 0
	}
	v := r.varint(what, most)
	if v == 0 {
		r.fail(fmt.Errorf("%s: 0 has a flag", what))
	}
	return v
}
