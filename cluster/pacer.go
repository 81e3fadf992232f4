package cluster

import "time"

// Bounds of what waits for one conn, in takes (ADR 6).
const (
	firstBacklog = 4 << 10 // until the peer's pace is known
	minBacklog   = 1 << 10 // however slow the peer was
	fullFrame    = 256     // takes of a frame that says something of the pace
)

// Times of a busy peer (ADR 28).
const (
	busyFor     = time.Second            // for how long a peer counts as busy that has said so
	busySilence = 250 * time.Millisecond // a busy peer that has left a frame unanswered for so long may be dead
)

// pacer measures how fast a peer serves a conn, and bounds by that what may wait for
// it: no more than the peer can answer within half an attempt. What comes on top would
// be late. It is a pure state machine.
//
// One frame is under way at a time, so the time until it is answered is what the peer
// needed for it; and a conn with much to do sends large frames, so that small ones,
// whose time is mostly that of the way, need not be looked at.
//
// The zero value has measured nothing; attempt must be set.
type pacer struct {
	attempt time.Duration
	sent    time.Time     // when the frame under way was sent; zero if none is
	takes   int64         // that were answered in full frames, old ones weighing less
	busy    time.Duration // how long that took
}

func (p *pacer) broken() { *p = pacer{attempt: p.attempt} }

func (p *pacer) sending(now time.Time) { p.sent = now }

// answered counts the frame under way, which had so many takes.
func (p *pacer) answered(takes int, now time.Time) {
	if takes >= fullFrame && !p.sent.IsZero() {
		p.takes = p.takes - p.takes/4 + int64(takes)
		p.busy = p.busy - p.busy/4 + now.Sub(p.sent)
	}
	p.sent = time.Time{}
}

// most is how many takes may wait. What comes alone may be more.
func (p *pacer) most() int {
	if p.busy <= 0 {
		return firstBacklog
	}
	inHalf := p.takes * int64(p.attempt/2) / int64(p.busy)
	return int(max(minBacklog, inHalf))
}

// stalled reports whether the frame under way should have been answered long ago.
// Then the peer is not short of time, it does not answer.
func (p *pacer) stalled(now time.Time) bool {
	return !p.sent.IsZero() && now.Sub(p.sent) >= p.attempt
}

// silent reports whether the frame under way has waited for so long that a peer that is only busy would have
// answered it.
func (p *pacer) silent(now time.Time) bool {
	return !p.sent.IsZero() && now.Sub(p.sent) >= busySilence
}
