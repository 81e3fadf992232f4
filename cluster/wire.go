package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Bounds of what travels between two nodes.
const (
	maxFrame      = 256 << 10 // bytes of one frame of questions
	maxAnswers    = 512 << 10 // bytes of one frame of answers: each may be longer than its question by a half
	maxDirect     = 16 << 10  // bytes of a frame that whoever asks sends himself
	maxQueue      = 1 << 20   // bytes that wait to be sent on one lane
	maxPending    = 16 << 10  // questions in flight on one lane
	deliverAtOnce = 64        // answers that are written while others wait for the lane
	maxUnacked    = 1         // frames under way on one lane
	keepBytes     = 128 << 10 // bytes of a frame that a lane keeps room for
	maxTakes      = 1 << 10   // takes of one group
	maxCalendar   = 64        // bytes of a calendar's text
)

// A frame is a version byte and then items without padding. Integers are
// unsigned LEB128 varints (u), zigzag varints (z) or little-endian.
//
//	question: op byte, id uint32, takes u, then per take:
//	          key.hi uint64, key.lo uint64, algorithm byte, flags byte, limit u, window u, cost z,
//	          each with its flag only, and above 0: burst u, maxDelay u, buckets u,
//	          with flagCalendar, and then without window: length u, as many bytes of text,
//	          and for opReturn: at u;
//	          then for opLend and opHot: lend u, tokens u, and for opGiveBack: at u
//	          and for opHeld: held u
//	answer:   id uint32, flags byte, takes u, with flagLent: tokens u, for u,
//	          with flagHeld: held u, with flagWait: wait u,
//	          with flagMoved: moved u, and as often: index u, mark uint64,
//	          or else per take: flags byte, remaining u, at u, resetAt-at z,
//	          with flagRetry: retryAt-at z, with flagDelay, and above 0: delay u
//
// Every question but opReturn is answered, a ping by an answer without takes; only
// a ping has none. With flagWait or flagMoved nothing was decided: the answer says how many
// takes the question has, and nothing of each. With flagMoved it says which of them live
// elsewhere, by index, and with whom, by markOf; 0 is unknown. Decisions with flagHeld are to be
// asked for by held with opHeld until an answer says held 0, which has no decisions any more.
const wireVersion = 1

type op byte

const (
	opDecide op = 1 // decide a group and count it
	opPeek   op = 2 // decide a group and count nothing
	opReturn op = 3 // give back what a group has counted
	opPing   op = 4 // answer at once
	opReset  op = 5 // forget a group's counters

	opLend     op = 6 // decide a group, count it, and lend more of the same
	opHot      op = 7 // likewise, for one take, and promise that a denial stays
	opGiveBack op = 8 // give back what is left of a loan
	opHeld     op = 9 // say whether a decision that was given before may be told

	// opStandby beside another asks the standby, because the owner does not answer; beside
	// opReturn it says that the takes were decided from copies.
	opStandby op = 1 << 7
	// opFormer beside another asks who stood by before, because the standby has no copy yet; and beside
	// opStandby on behalf of somebody who was asked as a standby. Both are sent on to whoever has it only.
	opFormer op = 1 << 6
)

// opOf returns what is asked about g.
func opOf(g *shard.Group) op {
	switch {
	case g.Held > 0:
		return opHeld
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
	}
	return false
}

// ops are beside what is asked, by as what.
var ops = [...]op{asOwner: 0, asStandby: opStandby, asFormer: opFormer, onBehalf: opStandby | opFormer}

// of returns how what o asks the owner for is asked so. Standbys lend nothing.
func (o op) of(how asked) op {
	if how != asOwner && o == opLend {
		o = opDecide
	}
	return o | ops[how]
}

// asked returns as what o is asked.
func (o op) asked() asked { return asked(slices.Index(ops[:], o&(opStandby|opFormer))) }

// asked says as what a node is asked.
type asked uint8

const (
	asOwner   asked = iota // as whoever has it
	asStandby              // because whoever has it does not answer, or nobody has it
	asFormer               // as who stood by before, because the standby has no copy yet
	onBehalf               // by somebody who was asked as a standby
)

// pingID is the id of every ping, and of no question that is answered.
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
	takeFlags = 1<<iota - 1 // all of them
)

// Flags of an answer.
const (
	flagGroup       = 1 << iota // the group is allowed
	flagPromise                 // the denial stays until its RetryAt, but for what waits for maxPromise
	flagLent                    // something is lent
	flagWait                    // to be asked again later
	flagMoved                   // another node has counters of the group
	flagStandby                 // the standby has asked the owner
	flagProvisional             // the standby has decided from its copy
	flagHeld                    // the decisions wait for the standby; or, with 0, no longer
	answerFlags     = 1<<iota - 1
)

// Flags of an answered take.
const (
	flagAllowed   = 1 << iota // it had room
	flagRetry                 // it was denied, and waiting helps
	flagDelay                 // it has to wait for its turn
	decisionFlags = 1<<iota - 1
)

// question is one decoded item of a request.
type question struct {
	op    op // without opStandby and opFormer
	how   asked
	id    uint32
	group shard.Group

	ticket uint32 // of Promises.quiet, for opHot
	quiet  bool
}

var errShort = errors.New("frame ends within an item")

// questionSize is the most bytes that a question about g can have.
func questionSize(g *shard.Group) int {
	size := 10 + plainTake*len(g.Takes)
	for i := range g.Takes {
		size += optionalSize(&g.Takes[i].Limit)
	}
	if g.Lend > 0 || g.LentAt > 0 || g.Held > 0 {
		size += 2 * binary.MaxVarintLen64
	}
	return size
}

const plainTake = 16 + 2 + 5 + 8 + 5 + 5 + 9 // bytes at most, of a take with a Burst

// optionalSize is the most bytes that the rarer fields of a limit can have.
func optionalSize(l *algorithms.Limit) int {
	size := 0
	if l.MaxDelay > 0 {
		size += binary.MaxVarintLen64
	}
	if l.Buckets > 0 {
		size += binary.MaxVarintLen64
	}
	if l.Calendar != nil {
		size += 1 + maxCalendar
	}
	return size
}

func appendQuestion(b []byte, o op, id uint32, g *shard.Group) []byte {
	takes := g.Takes
	b = append(b, byte(o))
	o &^= opStandby | opFormer
	b = binary.LittleEndian.AppendUint32(b, id)
	b = binary.AppendUvarint(b, uint64(len(takes)))
	for i := range takes {
		t := &takes[i]
		b = binary.LittleEndian.AppendUint64(b, t.Key.Hi)
		b = binary.LittleEndian.AppendUint64(b, t.Key.Lo)
		b = append(b, byte(t.Limit.Algorithm), flagsOf(t))
		b = binary.AppendUvarint(b, uint64(t.Limit.Limit))
		if t.Limit.Calendar == nil {
			b = binary.AppendUvarint(b, uint64(t.Limit.Window))
		}
		b = binary.AppendVarint(b, t.Cost)
		b = appendAboveZero(b, t.Limit.Burst)
		b = appendAboveZero(b, t.Limit.MaxDelay)
		b = appendAboveZero(b, t.Limit.Buckets)
		if c := t.Limit.Calendar; c != nil {
			b = binary.AppendUvarint(b, uint64(len(c.String())))
			b = append(b, c.String()...)
		}
		if o == opReturn {
			b = binary.AppendUvarint(b, uint64(t.Decision.At))
		}
	}
	switch o {
	case opLend, opHot:
		b = binary.AppendUvarint(b, uint64(g.Lend))
		b = binary.AppendUvarint(b, uint64(g.Tokens))
	case opGiveBack:
		b = binary.AppendUvarint(b, uint64(g.LentAt))
	case opHeld:
		b = binary.AppendUvarint(b, g.Held)
	}
	return b
}

func flagsOf(t *shard.Take) (flags byte) {
	return boolByte(t.Shadow)*flagShadow |
		boolByte(t.Limit.Burst > 0)*flagBurst |
		boolByte(t.Limit.MaxDelay > 0)*flagMaxDelay |
		boolByte(t.Limit.Buckets > 0)*flagBuckets |
		boolByte(t.Limit.Calendar != nil)*flagCalendar |
		boolByte(t.Tentative)*flagTentative |
		boolByte(t.Strict)*flagStrict
}

func appendAboveZero(b []byte, v int64) []byte {
	if v <= 0 {
		return b
	}
	return binary.AppendUvarint(b, uint64(v))
}

// appendWait answers a question about g that is to be asked again.
func appendWait(b []byte, id uint32, g *shard.Group, wait time.Duration) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, flagWait)
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	return binary.AppendUvarint(b, uint64(wait))
}

// appendUnanswered answers that nobody has decided g, or said that he has, and that it is not to be asked again: if it frees
// something, it may be counted.
func appendUnanswered(b []byte, id uint32, g *shard.Group) []byte { return appendWait(b, id, g, 0) }

// appendReleased answers a question about the decisions of g, which may be told now.
func appendReleased(b []byte, id uint32, g *shard.Group) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, flagGroup|flagHeld)
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	return append(b, 0)
}

// appendMoved answers a question about g of which takes have moved away; holder returns
// the mark of who has the counter of such a take.
func appendMoved(b []byte, id uint32, g *shard.Group, holder func(ring.Key) uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, flagMoved)
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	moved := 0
	for i := range g.Takes {
		moved += int(boolByte(g.Takes[i].Source == shard.Moved))
	}
	b = binary.AppendUvarint(b, uint64(moved))
	for i := range g.Takes {
		if t := &g.Takes[i]; t.Source == shard.Moved {
			b = binary.AppendUvarint(b, uint64(i))
			b = binary.LittleEndian.AppendUint64(b, holder(t.Key))
		}
	}
	return b
}

// markOf is how answers name a node, whatever view the asker has: by a hash of its id.
// No node's is 0.
func markOf(id string) uint64 { return max(1, xxhash.Sum64String(id)) }

func appendAnswer(b []byte, id uint32, g *shard.Group, promised bool) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, boolByte(g.Allowed)*flagGroup|boolByte(promised)*flagPromise|boolByte(g.Loan.Tokens > 0)*flagLent|boolByte(g.Held > 0)*flagHeld|sourceFlag(g))
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	if g.Loan.Tokens > 0 {
		b = binary.AppendUvarint(b, uint64(g.Loan.Tokens))
		b = binary.AppendUvarint(b, uint64(g.Loan.Until-g.Loan.At))
	}
	if g.Held > 0 {
		b = binary.AppendUvarint(b, g.Held)
	}
	for i := range g.Takes {
		d := &g.Takes[i].Decision
		var flags byte
		if d.Allowed {
			flags = flagAllowed
		} else if d.RetryAt != algorithms.Never {
			flags = flagRetry
		}
		flags |= boolByte(d.Delay > 0) * flagDelay
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(d.Remaining))
		b = binary.AppendUvarint(b, uint64(d.At))
		b = binary.AppendVarint(b, d.ResetAt-d.At)
		if flags&flagRetry != 0 {
			b = binary.AppendVarint(b, d.RetryAt-d.At)
		}
		b = appendAboveZero(b, d.Delay)
	}
	return b
}

// sourceFlag says who has answered g, if it was not the owner.
func sourceFlag(g *shard.Group) (flag byte) {
	for i := range g.Takes {
		switch g.Takes[i].Source {
		case shard.Provisional:
			return flagProvisional
		case shard.Standby:
			flag = flagStandby
		}
	}
	return flag
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// reader takes a frame apart. Its methods return zero once err is set.
type reader struct {
	rest     []byte
	err      error
	calendar *algorithms.Calendar // the last one; takes of one frame often have the same
}

func openFrame(frame []byte) reader {
	r := reader{rest: frame}
	if v := r.byte(); r.err == nil && v != wireVersion {
		r.err = fmt.Errorf("frame of version %d, not %d", v, wireVersion)
	}
	return r
}

// more reports whether there is another item to read.
func (r *reader) more() bool { return r.err == nil && len(r.rest) > 0 }

func (r *reader) fixed(n int) []byte {
	if len(r.rest) < n {
		r.fail(errShort)
	}
	if r.err != nil {
		return make([]byte, n)
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
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
	v, n := binary.Uvarint(r.rest)
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
	r.rest = r.rest[n:]
	return int64(v)
}

// zigzag reads a signed varint.
func (r *reader) zigzag() int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail(errShort)
	}
	if r.err != nil {
		return 0
	}
	r.rest = r.rest[n:]
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

// question reads one item of a request. The group's takes are appended to takes,
// whose new value is returned.
func (r *reader) question(takes []shard.Take) (question, []shard.Take) {
	o := op(r.byte())
	q := question{op: o &^ (opStandby | opFormer), how: o.asked(), id: r.uint32()}
	if q.op < opDecide || q.op > opHeld {
		r.fail(fmt.Errorf("question %d has the unknown op %d", q.id, q.op))
	}
	if q.how != asOwner && !q.op.forStandby() {
		r.fail(fmt.Errorf("question %d asks the standby for op %d", q.id, q.op))
	}
	n := r.varint("takes", maxTakes)
	if (n == 0) != (q.op == opPing) || n > 1 && q.op == opHot {
		r.fail(fmt.Errorf("question %d of op %d has %d takes", q.id, q.op, n))
	}
	first := len(takes)
	for range n {
		if r.err != nil {
			return q, takes
		}
		takes = append(takes, r.take(q.op))
		if q.how != asOwner && q.op == opReturn {
			takes[len(takes)-1].Source = shard.Provisional
		}
	}
	q.group = shard.Group{Takes: takes[first:len(takes):len(takes)], Peek: q.op == opPeek, Reset: q.op == opReset}
	switch q.op {
	case opLend, opHot:
		q.group.Lend = r.varint("lend", shard.MaxLoan)
		q.group.Tokens = r.varint("tokens", algorithms.MaxCost)
	case opGiveBack:
		q.group.LentAt = r.varint("at", math.MaxInt64)
	case opHeld:
		q.group.Held = uint64(r.optional("held", true, math.MaxInt64))
	}
	return q, takes
}

func (r *reader) take(o op) shard.Take {
	var t shard.Take
	t.Key.Hi, t.Key.Lo = r.uint64(), r.uint64()
	t.Limit.Algorithm = algorithms.Algorithm(r.byte())
	flags := r.flags("take", takeFlags)
	t.Shadow, t.Tentative, t.Strict = flags&flagShadow != 0, flags&flagTentative != 0, flags&flagStrict != 0
	t.Limit.Limit = r.varint("limit", math.MaxInt64)
	if flags&flagCalendar == 0 {
		t.Limit.Window = r.varint("window", math.MaxInt64)
	}
	t.Cost = r.zigzag()
	t.Limit.Burst = r.optional("burst", flags&flagBurst != 0, math.MaxInt64)
	t.Limit.MaxDelay = r.optional("max_delay", flags&flagMaxDelay != 0, math.MaxInt64)
	t.Limit.Buckets = r.optional("buckets", flags&flagBuckets != 0, math.MaxInt64)
	if flags&flagCalendar != 0 {
		t.Limit.Calendar = r.calendarText()
	}
	if o == opReturn {
		t.Decision.At = r.varint("at", math.MaxInt64)
	}
	if t.Cost < -algorithms.MaxCost || t.Cost > algorithms.MaxCost {
		r.fail(fmt.Errorf("cost: %d is not between %d and %d", t.Cost, -int64(algorithms.MaxCost), int64(algorithms.MaxCost)))
	}
	if r.err == nil {
		if err := t.Limit.Validate(); err != nil {
			r.fail(err)
		}
	}
	return t
}

// calendarText reads a calendar, which must be written as it writes itself.
func (r *reader) calendarText() *algorithms.Calendar {
	text := r.fixed(int(r.varint("calendar", maxCalendar)))
	if r.err != nil || r.calendar != nil && r.calendar.String() == string(text) {
		return r.calendar
	}
	c, err := algorithms.ParseCalendar(string(text))
	switch {
	case err != nil:
		r.fail(err)
	case c.String() != string(text):
		r.fail(fmt.Errorf("calendar: %q is written %q", text, c))
	}
	r.calendar = c
	return c
}

// answerHead is the beginning of one item of a response.
type answerHead struct {
	id       uint32
	takes    int
	allowed  bool
	promised bool
	lent     int64         // tokens
	lentFor  int64         // nanoseconds, from the instant of the decisions on
	wait     time.Duration // before the question is asked again; 0 if it is not to be
	lost     bool          // nobody has answered
	held     uint64        // what the decisions are asked for by, which wait for the standby; 0 if they do not
	released bool          // the decisions that were given before may be told
	moved    int           // takes that live elsewhere; 0 if it is answered
	source   shard.Source  // who has answered
}

// decided reports whether decisions follow.
func (h *answerHead) decided() bool { return h.wait == 0 && h.moved == 0 && !h.released && !h.lost }

func (r *reader) answerHead() answerHead {
	h := answerHead{id: r.uint32()}
	flags := r.flags("answer", answerFlags)
	h.allowed, h.promised = flags&flagGroup != 0, flags&flagPromise != 0
	h.takes = int(r.varint("takes", maxTakes))
	if flags&flagLent != 0 {
		h.lent = r.varint("lent", shard.MaxLoan)
		h.lentFor = r.varint("for", int64(algorithms.MaxWindow))
	}
	if flags&flagHeld != 0 {
		h.held = uint64(r.varint("held", math.MaxInt64))
		h.released = h.held == 0
	}
	if flags&flagWait != 0 {
		h.wait = time.Duration(r.varint("wait", int64(maxPromise)))
		h.lost = h.wait == 0
	}
	h.moved = int(r.optional("moved", flags&flagMoved != 0, int64(h.takes)))
	switch {
	case h.held > 0:
		h.source = shard.Held
	case flags&flagProvisional != 0:
		h.source = shard.Provisional
	case flags&flagStandby != 0:
		h.source = shard.Standby
	default:
		h.source = shard.Owner
	}
	return h
}

// movedTake reads which take of a question lives elsewhere, of so many, and the mark of
// who has it.
func (r *reader) movedTake(takes int) (index int, mark uint64) {
	index = int(r.varint("index", int64(takes-1)))
	return index, r.uint64()
}

// decision reads one take of an answer.
func (r *reader) decision() algorithms.Decision {
	flags := r.flags("decision", decisionFlags)
	d := algorithms.Decision{Allowed: flags&flagAllowed != 0}
	d.Remaining = r.varint("remaining", math.MaxInt64)
	d.At = r.varint("at", math.MaxInt64)
	d.ResetAt = d.At + r.zigzag()
	switch {
	case flags&flagRetry != 0:
		d.RetryAt = d.At + r.zigzag()
	case d.Allowed:
		d.RetryAt = d.At
	default:
		d.RetryAt = algorithms.Never
	}
	d.Delay = r.optional("delay", flags&flagDelay != 0, math.MaxInt64)
	return d
}
