package backtest

import (
	"cmp"
	"container/heap"
)

// Checks at one time are logged in the order of their answers, on several nodes and often not in the order of their decisions. So lines of
// a decision log wait for earlier ones, up to these bounds.
const (
	orderedFor   = second   // of the log's time
	orderedLines = 8192     // that wait
	spareBytes   = 4 << 10  // of a line whose memory is used again
	orderedBytes = 16 << 20 // of them
)

// lineQueue holds lines of decision logs by the instant of their decision. It is a heap.
type lineQueue struct {
	lines []*orderedLine
	spare []*orderedLine
	bytes int
	n     int64 // lines so far
	last  int64 // the instant of the line before
}

// orderedLine is a line that waits, read.
type orderedLine struct {
	text   []byte
	parser decisions
	record record
	at     int64
	log    string
	line   int64 // in log
	n      int64 // of all
}

// before reports whether a was decided before b, as far as the log says: checks of one batch have one instant.
func (a *orderedLine) before(b *orderedLine) bool {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.n, b.n)) < 0
}

// decidedAt returns the instant at which a counter has decided, 0 if none has.
func (c *loggedCheck) decidedAt() int64 {
	for i := range c.limits {
		if c.limits[i].at > 0 {
			return c.limits[i].at
		}
	}
	return 0
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (o *lineQueue) Len() int           { return len(o.lines) }
func (o *lineQueue) Less(i, j int) bool { return o.lines[i].before(o.lines[j]) }
func (o *lineQueue) Swap(i, j int)      { o.lines[i], o.lines[j] = o.lines[j], o.lines[i] }
func (o *lineQueue) Push(line any)      { o.lines = append(o.lines, line.(*orderedLine)) }
func (o *lineQueue) Pop() any {
	n := len(o.lines) - 1
	line := o.lines[n]
	o.lines = o.lines[:n]
	return line
}

// orderedLine reads a line of a decision log, which is replayed once all earlier ones are known.
func (r *Run) orderedLine(text []byte) fault {
	o := &r.ordered
	l := &orderedLine{}
	if n := len(o.spare); n > 0 {
		l, o.spare = o.spare[n-1], o.spare[:n-1]
	}
	l.text = append(l.text[:0], text...)
	if f := l.parser.parse(l.text, &l.record); f != fine {
		o.spare = append(o.spare, l)
		return f
	}
	o.n++
	l.at, l.log, l.line, l.n = cmp.Or(l.record.logged.decidedAt(), l.record.time), r.log, r.n, o.n
	l.record.time = l.at
	jump := l.at-o.last > farAhead || o.last-l.at > farAhead
	if o.last = l.at; jump { // no order helps: another log, or a clock that is wrong
		r.replayOrdered(0)
		r.replayLine(l)
		return fine
	}
	heap.Push(o, l)
	o.bytes += len(l.text)
	for len(o.lines) > 0 && (o.lines[0].at <= l.at-orderedFor || o.bytes > orderedBytes) {
		r.replayFirst()
	}
	r.replayOrdered(orderedLines)
	return fine
}

// replayOrdered replays lines, the earliest first, until no more than most wait.
func (r *Run) replayOrdered(most int) {
	for len(r.ordered.lines) > most {
		r.replayFirst()
	}
}

func (r *Run) replayFirst() {
	l := heap.Pop(&r.ordered).(*orderedLine)
	r.ordered.bytes -= len(l.text)
	r.replayLine(l)
}

// replayLine replays a line whose turn it is, unless it is far ahead.
func (r *Run) replayLine(l *orderedLine) {
	log, n := r.log, r.n
	r.record, r.log, r.n = l.record, l.log, l.line
	r.parsed(l.text)
	r.log, r.n = log, n
	if len(l.text) <= spareBytes {
		r.ordered.spare = append(r.ordered.spare, l)
	}
}
