package backtest

import "slices"

// A line that is far ahead of its time would end the time of all lines after it: time does not go backwards for a
// counter. So a line that is more than farAhead later than all before it is held until lookahead lines after it are
// known, or all of the log. It is left out if most of them are that much earlier. A log that has a gap goes on later.
const (
	farAhead  = 86_400 * second
	lookahead = 16
)

// heldLine is a line that waits for those after it.
type heldLine struct {
	text   []byte
	time   int64
	parser parser
	log    string
	n      int64 // in log
}

// isAhead reports whether an instant is far later than all lines so far. That of the first line is: nothing says that it is not.
func (r *Run) isAhead(t int64) bool { return t-farAhead > r.latest }

// hold keeps a line for later. At most lookahead + 1 lines are held.
func (r *Run) hold(line []byte, t int64) {
	r.held = append(r.held, heldLine{slices.Clone(line), t, r.parser, r.log, r.n})
	if len(r.held) > lookahead {
		r.settle()
	}
}

// settle replays the first line that is held, or leaves it out, and replays those after it that are not far ahead.
func (r *Run) settle() {
	first, earlier := r.held[0], 0
	for _, after := range r.held[1:] {
		if after.time < first.time-farAhead {
			earlier++
		}
	}
	if 2*earlier > len(r.held)-1 {
		r.fault(ahead, first.log, first.n)
	} else {
		r.replayHeld(first)
	}
	at := 1
	for ; at < len(r.held) && !r.isAhead(r.held[at].time); at++ {
		r.replayHeld(r.held[at])
	}
	r.held = slices.Delete(r.held, 0, at)
}

// replayHeld reads a line again, for its values are those of another line by now.
func (r *Run) replayHeld(h heldLine) {
	r.reset()
	if h.parser.parse(h.text, &r.record) == fine { // as before
		r.record.time = h.time
		r.replay()
	}
}

// settleAll replays what is held at the end of all logs.
func (r *Run) settleAll() {
	for len(r.held) > 0 {
		r.settle()
	}
}
