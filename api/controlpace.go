package api

import (
	"time"

	"golang.org/x/net/http2"
)

// controlPace slows a connection down whose client controls it more often than any use needs: by resets of its own calls (CVE-2023-44487), settings,
// pings and the like, which cost the node's time and ask for nothing. It is for the goroutine that reads from the connection.
type controlPace struct {
	due time.Time // when as many frames were due as have come; in the past if fewer have come
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

// wait waits until that number of further frames is due, for maxControlWait at most.
func (p *controlPace) wait(frames int) {
	if frames == 0 {
		return
	}
	now := time.Now()
	if earliest := now.Add(-controlBurst * time.Second / controlRate); p.due.Before(earliest) {
		p.due = earliest
	}
	p.due = p.due.Add(time.Duration(frames) * time.Second / controlRate)
	if late := p.due.Sub(now); late > 0 {
		time.Sleep(min(late, maxControlWait))
	}
}
