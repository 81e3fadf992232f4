package cluster

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// This file is the format of answers.

// appendWait answers a request about g that is to be asked again.
func appendWait(b []byte, id uint32, g *shard.Group, wait time.Duration) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, flagWait)
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	return binary.AppendUvarint(b, uint64(wait))
}

// appendUndecided answers that no node is known to have decided g, and that it is not to be sent again: if
// it frees something, it may be counted.
func appendUndecided(b []byte, id uint32, g *shard.Group) []byte { return appendWait(b, id, g, 0) }

// appendReleased answers a request about the decisions of g, which may be told now.
func appendReleased(b []byte, id uint32, g *shard.Group) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, flagGroup|flagDeferred)
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	return append(b, 0)
}

// appendRedirect answers a request about g of which takes are on other nodes; owner returns
// the mark of the node that has the counter of such a take.
func appendRedirect(b []byte, id uint32, g *shard.Group, owner func(ring.Key) uint64) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(b, flagRedirect)
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	redirected := 0
	for i := range g.Takes {
		redirected += int(boolByte(g.Takes[i].Source == shard.Redirected))
	}
	b = binary.AppendUvarint(b, uint64(redirected))
	for i := range g.Takes {
		if t := &g.Takes[i]; t.Source == shard.Redirected {
			b = binary.AppendUvarint(b, uint64(i))
			b = binary.LittleEndian.AppendUint64(b, owner(t.Key))
		}
	}
	return b
}

// markOf is how answers name a node, for an asker with any view: by a hash of its id. No node's is 0.
func markOf(id string) uint64 { return max(1, xxhash.Sum64String(id)) }

// appendMark appends the mark of a node, or 0 for none.
func appendMark(b []byte, mark uint64) []byte {
	if mark == 0 {
		return append(b, 0)
	}
	return binary.LittleEndian.AppendUint64(append(b, 1), mark)
}

// mark reads what appendMark appends.
func (r *reader) mark() uint64 {
	if r.flags("mark", 1) == 0 {
		return 0
	}
	return r.uint64()
}

// appendBusy appends that this node is busy.
func appendBusy(b []byte) []byte { return appendAnswer(b, pingID, &shard.Group{}, false) }

func appendAnswer(b []byte, id uint32, g *shard.Group, leased bool) []byte {
	b = binary.LittleEndian.AppendUint32(b, id)
	flags := boolByte(g.Allowed)*flagGroup | boolByte(leased)*flagDenialLease | boolByte(g.TokenLease.Tokens > 0)*flagLent | boolByte(g.Deferred > 0)*flagDeferred | sourceFlag(g)
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(len(g.Takes)))
	if g.TokenLease.Tokens > 0 {
		b = binary.AppendUvarint(b, uint64(g.TokenLease.Tokens))
		b = binary.AppendUvarint(b, uint64(g.TokenLease.Until-g.TokenLease.At))
	}
	if g.Deferred > 0 {
		b = binary.AppendUvarint(b, g.Deferred)
	}
	if flags&(flagProvisional|flagRelayed) != 0 {
		b = appendMark(b, g.By)
	}
	for i := range g.Takes {
		d := &g.Takes[i].Decision
		of := boolByte(d.Delay > 0)*flagDelay | boolByte(g.Takes[i].Contended)*flagContended
		if d.Allowed {
			of |= flagAllowed
		} else if d.RetryAt != algorithms.Never {
			of |= flagRetry
		}
		b = append(b, of)
		b = binary.AppendUvarint(b, uint64(d.Remaining))
		b = binary.AppendUvarint(b, uint64(d.At))
		b = binary.AppendVarint(b, d.ResetAt-d.At)
		if of&flagRetry != 0 {
			b = binary.AppendVarint(b, d.RetryAt-d.At)
		}
		b = appendAboveZero(b, d.Delay)
	}
	return b
}

// sourceFlag returns the flag of the source of g's answer, 0 if it is the owner.
func sourceFlag(g *shard.Group) (flag byte) {
	for i := range g.Takes {
		switch g.Takes[i].Source {
		case shard.Provisional:
			return flagProvisional
		case shard.Relayed:
			flag = flagRelayed
		default:
		}
	}
	return flag
}

// answerHead is the beginning of one item of a response.
type answerHead struct {
	id         uint32
	takes      int
	allowed    bool
	leased     bool
	lent       int64         // tokens
	lentFor    int64         // nanoseconds, from the instant of the decisions on
	wait       time.Duration // before the request is asked again; 0 if it is not to be
	lost       bool          // no node has answered
	deferred   uint64        // what the decisions are asked for by, which wait for the standby; 0 if they do not
	released   bool          // the decisions that were given before may be told
	redirected int           // takes that live elsewhere; 0 if it is answered
	source     shard.Source  // of the decisions
	by         uint64        // the mark of the node that has decided, 0 if it is the one that answers
}

// decided reports whether decisions follow.
func (h *answerHead) decided() bool {
	return h.wait == 0 && h.redirected == 0 && !h.released && !h.lost
}

func (r *reader) answerHead() answerHead {
	h := answerHead{id: r.uint32()}
	flags := r.flags("answer", answerFlags)
	h.allowed, h.leased = flags&flagGroup != 0, flags&flagDenialLease != 0
	h.takes = int(r.varint("takes", maxTakes))
	if flags&flagLent != 0 {
		h.lent = r.varint("lent", shard.MaxTokenLease)
		h.lentFor = r.varint("for", int64(algorithms.MaxWindow))
	}
	if flags&flagDeferred != 0 {
		h.deferred = uint64(r.varint("deferred", math.MaxInt64))
		h.released = h.deferred == 0
	}
	if flags&flagWait != 0 {
		h.wait = time.Duration(r.varint("wait", int64(maxDenialLease)))
		h.lost = h.wait == 0
	}
	if flags&(flagProvisional|flagRelayed) != 0 {
		h.by = r.mark()
	}
	h.redirected = int(r.optional("redirected", flags&flagRedirect != 0, int64(h.takes)))
	switch {
	case h.deferred > 0:
		h.source = shard.Deferred
	case flags&flagProvisional != 0:
		h.source = shard.Provisional
	case flags&flagRelayed != 0:
		h.source = shard.Relayed
	default:
		h.source = shard.Owner
	}
	return h
}

// redirectedTake reads which take of a request is on another node, of as many as the request has, and the mark
// of that node.
func (r *reader) redirectedTake(takes int) (index int, mark uint64) {
	index = int(r.varint("index", int64(takes-1)))
	return index, r.uint64()
}

// decisions reads those that follow h into the takes of g, if g fits the answer. They have no meaning until their takes have a source.
func (r *reader) decisions(h *answerHead, g *shard.Group, fits bool) {
	var unused algorithms.Decision
	for i := 0; i < h.takes && h.decided(); i++ {
		d := &unused
		if fits {
			d = &g.Takes[i].Decision
		}
		contended := r.decision(d)
		switch {
		case !fits:
		case r.err != nil:
			*d = algorithms.Decision{}
		default:
			g.Takes[i].Contended, g.Takes[i].Source = contended, h.source
		}
	}
}

// decision reads one take of an answer into d, and returns whether it is contended.
func (r *reader) decision(d *algorithms.Decision) (contended bool) {
	flags := r.flags("decision", decisionFlags)
	d.Allowed = flags&flagAllowed != 0
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
	return flags&flagContended != 0
}

// deferAnswer makes g, to which h is an answer, one whose answer is deferred, or no longer is.
func (h *answerHead) deferAnswer(g *shard.Group) {
	switch {
	case h.deferred > 0:
		g.Deferred = h.deferred
	case h.released:
		release(g)
	case g.Deferred > 0 && h.wait > 0:
		setSource(g, shard.Deferred)
	}
}
