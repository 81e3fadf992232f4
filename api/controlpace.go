package api

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// controlPace slows a connection down whose client costs the node time and asks for nothing: by resets of its own calls (CVE-2023-44487), settings, pings and the
// like, by calls that are refused, and by messages that are packed to be unpacked. All of that is counted in frames. Each frame of an answer pays for one,
// so that a client is not slowed down that asks a lot and gives up some of it. It is for the goroutine that reads from the connection.
type controlPace struct {
	late  *atomic.Int64 // connections of the node that wait
	paid  int           // frames that answers have paid for, and that have not come; maxPaid at most
	due   time.Time     // when as many frames were due as have come; in the past if fewer have come
	since time.Time     // when it was late first since fewer had come than might; zero if it was not
}

// isControl reports whether frames of that kind are neither calls nor their messages. Windows are opened as often as messages are read.
func isControl(kind http2.FrameType) bool {
	switch kind {
	case http2.FrameHeaders, http2.FrameContinuation, http2.FrameData, http2.FrameWindowUpdate:
		return false
	default:
		return true
	}
}

// wait waits until that number of further frames is due, for maxControlWait at most. It is below 0 if more was answered. It is
// false if the connection has been late for so long, on average, that its client does better with another one: on this one, all that it asks may be answered too late.
func (p *controlPace) wait(frames int) (goesOn bool) {
	if frames <= p.paid {
		p.paid = min(p.paid-frames, maxPaid)
		return true
	}
	frames -= p.paid
	p.paid = 0
	now := time.Now()
	if earliest := now.Add(-controlBurst * time.Second / controlRate); p.due.Before(earliest) {
		p.due, p.since = earliest, time.Time{}
	}
	p.due = p.due.Add(time.Duration(frames) * time.Second / controlRate * time.Duration(1+p.late.Load()/fewLate))
	late := min(p.due.Sub(now), maxControlWait)
	if late <= 0 {
		return true
	}
	p.due = now.Add(late)
	if p.since.IsZero() {
		p.since = now
	}
	p.late.Add(1)
	time.Sleep(late)
	p.late.Add(-1)
	return time.Since(p.since) < maxLate
}

// isLate reports whether half of the frames have come that may come at once.
func (p *controlPace) isLate() bool {
	return !p.due.IsZero() && time.Since(p.due) < controlBurst*time.Second/controlRate/2
}

// charge counts work that a message has cost on the connection of a call.
func charge(ctx context.Context, frames int) {
	if conn := meteredConnOf(ctx); conn != nil {
		conn.unfinished.charged.Add(int64(frames))
	}
}
