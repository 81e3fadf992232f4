package cluster

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// request is one decoded item of a request.
type request struct {
	op    op // without opRoles
	how   role
	id    uint32
	group shard.Group

	span  *trace.SpanContext // of the asker; nil if the check is not traced
	until time.Time          // when the asker gives up, by this node's clock; zero if that is not known or does not matter

	ticket uint32 // of GivenDenialLeases.quiet, for opHot
	quiet  bool
}

// lateAt reports whether the asker has given q up by now, so that it must not be counted any more.
func (q *request) lateAt(now time.Time) bool { return !q.until.IsZero() && !now.Before(q.until) }

// lapses reports whether q is not to be decided any more once its asker has given it up: it is then asked of
// another node. What frees something is asked of one node only.
func (q *request) lapses() bool {
	switch q.op {
	case opDecide, opPeek, opLend, opHot:
		return !frees(&q.group)
	default:
		return false
	}
}

// newRequests begins a frame of requests. When it is sent remains to be said by setSent.
func newRequests(b []byte) []byte { return appendStamp(newFrame(b), opSent, 0) }

func setSent(frame []byte, at stamp) {
	binary.LittleEndian.PutUint32(frame[lengthSize+2:], uint32(at))
}

// requestSize is the most bytes that a request about g can have.
func requestSize(g *shard.Group) int {
	size := 10 + plainTake*len(g.Takes)
	for i := range g.Takes {
		size += optionalSize(&g.Takes[i].Limit)
	}
	if g.Lend > 0 || g.LentAt > 0 || g.Deferred > 0 || g.ForNode || g.By > 0 {
		size += 4 * binary.MaxVarintLen64
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

func appendRequest(b []byte, o op, id uint32, g *shard.Group) []byte {
	takes, relayed := g.Takes, o.namesDecider()
	b = append(b, byte(o))
	o &^= opRoles
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
		if o == opReturn || o == opKeep {
			b = binary.AppendUvarint(b, uint64(t.Decision.At))
		}
	}
	return appendRest(b, o, relayed, g)
}

// appendRest appends what a request has after its takes.
func appendRest(b []byte, o op, relayed bool, g *shard.Group) []byte {
	switch o {
	case opReturn:
		if relayed {
			b = appendMark(b, g.By)
		}
	case opLend, opHot:
		b = appendLend(b, g)
	case opGiveBack:
		b = binary.AppendUvarint(b, uint64(g.LentAt))
	case opDeferred:
		b = binary.AppendUvarint(b, g.Deferred)
	default: // the others have no more than their takes
	}
	return b
}

func appendLend(b []byte, g *shard.Group) []byte {
	b = binary.AppendUvarint(b, uint64(g.Lend))
	b = binary.AppendUvarint(b, uint64(g.Tokens))
	if !g.ForNode {
		return append(b, 0)
	}
	b = binary.AppendUvarint(b, 1+uint64(g.Unused.At))
	if g.Unused.At > 0 {
		b = binary.AppendUvarint(b, uint64(g.Unused.Tokens))
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
		boolByte(t.Strict)*flagStrict |
		boolByte(t.Settles)*flagSettles
}

// request reads one item of a request into q. The group's takes are appended to takes,
// whose new value is returned. Like all that is long to copy, they are read where they stay.
func (r *reader) request(q *request, takes []shard.Take) []shard.Take {
	o := op(r.byte())
	*q = request{op: o &^ opRoles, id: r.uint32(), span: r.span}
	if (q.op < opDecide || q.op > opDeferred) && q.op != opKeep {
		r.fail(fmt.Errorf("request %d has the unknown op %d", q.id, q.op))
	}
	if o&opRoles == opRoles && q.op != opReturn || o&opRoles != 0 && !q.op.forStandby() {
		r.fail(fmt.Errorf("request %d asks the standby for op %d", q.id, q.op))
	} else if q.op != opReturn {
		q.how = o.role()
	}
	n := r.varint("takes", maxTakes)
	if (n == 0) != (q.op == opPing) || n > 1 && q.op == opHot {
		r.fail(fmt.Errorf("request %d of op %d has %d takes", q.id, q.op, n))
	}
	first := len(takes)
	for range n {
		if r.err != nil {
			return takes
		}
		last := len(takes)
		takes = slices.Grow(takes, 1)[:last+1]
		t := &takes[last]
		*t = shard.Take{}
		r.take(t, q.op)
		if q.op == opReturn {
			t.Source = o.countedBy()
		}
	}
	q.group.Takes, q.group.Peek, q.group.Reset = takes[first:len(takes):len(takes)], q.op == opPeek, q.op == opReset
	r.afterTakes(q, o)
	return takes
}

// afterTakes reads what follows the takes of a request, whose op was o with its roles.
func (r *reader) afterTakes(q *request, o op) {
	switch q.op {
	case opReturn:
		if o.namesDecider() {
			q.group.By = r.mark()
		}
	case opLend, opHot:
		r.lend(&q.group)
	case opGiveBack:
		q.group.LentAt = r.varint("at", math.MaxInt64)
	case opDeferred:
		q.group.Deferred = uint64(r.optional("deferred", true, math.MaxInt64))
	default: // the others have no more than their takes
	}
}

func (r *reader) lend(g *shard.Group) {
	g.Lend = r.varint("lend", shard.MaxTokenLease)
	g.Tokens = r.varint("tokens", algorithms.MaxCost)
	if at := r.varint("rest", math.MaxInt64); at > 0 {
		g.ForNode, g.Unused.At = true, at-1
	}
	if g.Unused.At > 0 {
		g.Unused.Tokens = r.varint("rest", math.MaxInt64)
	}
}

// take reads a take into t, which is zero.
func (r *reader) take(t *shard.Take, o op) {
	t.Key.Hi, t.Key.Lo = r.uint64(), r.uint64()
	t.Limit.Algorithm = algorithms.Algorithm(r.byte())
	flags := r.flags("take", takeFlags)
	t.Shadow, t.Tentative, t.Strict = flags&flagShadow != 0, flags&flagTentative != 0, flags&flagStrict != 0
	t.Settles = flags&flagSettles != 0
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
	if o == opReturn || o == opKeep {
		t.Decision.At = r.varint("at", math.MaxInt64)
	}
	if t.Settles && (o != opReturn || t.Cost < 0) {
		r.fail(fmt.Errorf("op %d settles a lease with %d tokens", o, t.Cost))
	}
	if t.Cost < -algorithms.MaxCost || t.Cost > algorithms.MaxCost {
		r.fail(fmt.Errorf("cost: %d is not between %d and %d", t.Cost, -int64(algorithms.MaxCost), int64(algorithms.MaxCost)))
	}
	if r.err != nil || r.limit != nil && t.Limit == *r.limit {
		return
	}
	if err := t.Limit.Validate(); err != nil {
		r.fail(err)
		return
	}
	r.limit = &t.Limit
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
