package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// Bounds of what travels between two nodes.
const (
	maxFrame      = 256 << 10 // bytes of one frame
	maxDirect     = 16 << 10  // bytes of a frame that whoever asks sends himself
	maxQueue      = 1 << 20   // bytes that wait to be sent on one lane
	maxPending    = 16 << 10  // questions in flight on one lane
	maxUnacked    = 1         // frames under way on one lane
	keepQuestions = 1 << 10   // questions and takes that a link keeps room for
	keepBytes     = 64 << 10  // bytes of a frame that a link keeps room for
	maxTakes      = 1 << 10   // takes of one group
)

// A frame is a version byte and then items without padding. Integers are
// unsigned LEB128 varints (u), zigzag varints (z) or little-endian.
//
//	question: op byte, id uint32, takes u, then per take:
//	          key.hi uint64, key.lo uint64, algorithm byte, limit u, window u, burst u, cost u,
//	          and for opReturn: at u
//	answer:   id uint32, allowed byte, takes u, then per take:
//	          flags byte, remaining u, at u, resetAt-at z, and with flagRetry: retryAt-at z
//
// Every question but opReturn is answered, a ping by an answer without takes.
const wireVersion = 1

type op byte

const (
	opDecide op = 1 // decide a group and count it
	opPeek   op = 2 // decide a group and count nothing
	opReturn op = 3 // give back what a group has counted
	opPing   op = 4 // answer at once
)

// pingID is the id of every ping, and of no question that is answered.
const pingID = 0

// Flags of an answered take.
const (
	flagAllowed = 1 << iota // it had room
	flagRetry               // it was denied, and waiting helps
)

// question is one decoded item of a request.
type question struct {
	op    op
	id    uint32
	group shard.Group
}

var errShort = errors.New("frame ends within an item")

// questionSize is the most bytes that a question of so many takes can have.
func questionSize(takes int) int { return 8 + 52*takes }

func appendQuestion(b []byte, o op, id uint32, takes []shard.Take) []byte {
	b = append(b, byte(o))
	b = binary.LittleEndian.AppendUint32(b, id)
	b = binary.AppendUvarint(b, uint64(len(takes)))
	for i := range takes {
		t := &takes[i]
		b = binary.LittleEndian.AppendUint64(b, t.Key.Hi)
		b = binary.LittleEndian.AppendUint64(b, t.Key.Lo)
		b = append(b, byte(t.Limit.Algorithm))
		b = binary.AppendUvarint(b, uint64(t.Limit.Limit))
		b = binary.AppendUvarint(b, uint64(t.Limit.Window))
		b = binary.AppendUvarint(b, uint64(t.Limit.Burst))
		b = binary.AppendUvarint(b, uint64(t.Cost))
		if o == opReturn {
			b = binary.AppendUvarint(b, uint64(t.Decision.At))
		}
	}
	return b
}

func appendAnswer(b []byte, id uint32, g *shard.Group) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, boolByte(g.Allowed))
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	for i := range g.Takes {
		d := &g.Takes[i].Decision
		var flags byte
		if d.Allowed {
			flags = flagAllowed
		} else if d.RetryAt != algorithms.Never {
			flags = flagRetry
		}
		b = append(b, flags)
		b = binary.AppendUvarint(b, uint64(d.Remaining))
		b = binary.AppendUvarint(b, uint64(d.At))
		b = binary.AppendVarint(b, d.ResetAt-d.At)
		if flags&flagRetry != 0 {
			b = binary.AppendVarint(b, d.RetryAt-d.At)
		}
	}
	return b
}

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// reader takes a frame apart. Its methods return zero once err is set.
type reader struct {
	rest []byte
	err  error
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

// since reads an instant as the distance from at.
func (r *reader) since(at int64) int64 {
	v, n := binary.Varint(r.rest)
	if n <= 0 {
		r.fail(errShort)
	}
	if r.err != nil {
		return 0
	}
	r.rest = r.rest[n:]
	return at + v
}

// question reads one item of a request. The group's takes are appended to takes,
// whose new value is returned.
func (r *reader) question(takes []shard.Take) (question, []shard.Take) {
	q := question{op: op(r.byte()), id: r.uint32()}
	if q.op < opDecide || q.op > opPing {
		r.fail(fmt.Errorf("question %d has the unknown op %d", q.id, q.op))
	}
	first := len(takes)
	for range r.varint("takes", maxTakes) {
		if r.err != nil {
			return q, takes
		}
		takes = append(takes, r.take(q.op))
	}
	q.group = shard.Group{Takes: takes[first:len(takes):len(takes)], Peek: q.op == opPeek}
	return q, takes
}

func (r *reader) take(o op) shard.Take {
	var t shard.Take
	t.Key.Hi, t.Key.Lo = r.uint64(), r.uint64()
	t.Limit.Algorithm = algorithms.Algorithm(r.byte())
	t.Limit.Limit = r.varint("limit", math.MaxInt64)
	t.Limit.Window = r.varint("window", math.MaxInt64)
	t.Limit.Burst = r.varint("burst", math.MaxInt64)
	t.Cost = r.varint("cost", algorithms.MaxCost)
	if o == opReturn {
		t.Decision.At = r.varint("at", math.MaxInt64)
	}
	if r.err == nil {
		if err := t.Limit.Validate(); err != nil {
			r.fail(err)
		}
	}
	return t
}

// answerHead reads the beginning of one item of a response.
func (r *reader) answerHead() (id uint32, allowed bool, takes int) {
	id = r.uint32()
	allowed = r.byte() != 0
	return id, allowed, int(r.varint("takes", maxTakes))
}

// decision reads one take of an answer.
func (r *reader) decision() algorithms.Decision {
	flags := r.byte()
	d := algorithms.Decision{Allowed: flags&flagAllowed != 0}
	d.Remaining = r.varint("remaining", math.MaxInt64)
	d.At = r.varint("at", math.MaxInt64)
	d.ResetAt = r.since(d.At)
	switch {
	case flags&flagRetry != 0:
		d.RetryAt = r.since(d.At)
	case d.Allowed:
		d.RetryAt = d.At
	default:
		d.RetryAt = algorithms.Never
	}
	return d
}
