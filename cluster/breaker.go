package cluster

import (
	"time"

	"github.com/weirlimit/weir/cluster/replica"
)

// Times of the breaker.
const (
	probeEvery  = 250 * time.Millisecond // between pings on a quiet or open conn, and between attempts to connect
	redialEvery = 50 * time.Millisecond  // between attempts to connect to a peer whose connection was fine until it broke
	silence     = 750 * time.Millisecond // a peer that says nothing for so long is not there
	tripAfter   = 3                      // timeouts in a row, each of a request sent after the one before
)

// breaker decides whether it makes sense to ask a peer. It is a pure state
// machine: open until the first ping has been answered quickly, opened again by
// a broken stream, by timeouts in a row or by silence, and healthy only by a ping
// that is answered as quickly as a request must be. So a peer that is alive but
// too slow to be of use stays open, and the breaker does not flap.
//
// The zero value is open; attempt must be set.
type breaker struct {
	attempt  time.Duration // how long a request may wait for its answer
	healthy  bool
	timeouts int       // in a row
	lastLate time.Time // when the last of them was counted
	pingSent time.Time // of the ping that was not yet answered; zero if none
	heard    time.Time // when the peer last said anything
	ticked   time.Time // when tick was last called; zero if it was not
}

func (b *breaker) connected(now time.Time) { *b = breaker{attempt: b.attempt, heard: now} }

func (b *breaker) broken() { *b = breaker{attempt: b.attempt} }

func (b *breaker) answered(now time.Time) {
	b.heard = now
	b.timeouts = 0
}

// timedOut counts a request that was sent at sent and got no answer in time.
// Of many that were under way together one counts: a single pause of the peer
// must not open the breaker because it was busy. And a request that waited for
// less than an attempt does not count at all: else a caller in a hurry could
// cut off a healthy peer from all callers.
func (b *breaker) timedOut(sent, now time.Time) {
	if sent.Before(b.lastLate) || now.Sub(sent) < b.attempt {
		return
	}
	b.lastLate = now
	if b.timeouts++; b.timeouts >= tripAfter {
		b.healthy = false
	}
}

// pong reports whether to ping again at once: the peer answers after a pause, and how fast it is
// now is not known yet. One that is slow all the time is asked no more often for it.
func (b *breaker) pong(now time.Time) (again bool) {
	b.heard = now
	again = !b.pingSent.IsZero() && now.Sub(b.pingSent) > probeEvery
	if !b.pingSent.IsZero() && now.Sub(b.pingSent) <= b.attempt {
		b.healthy = true
		b.timeouts = 0
	}
	b.pingSent = time.Time{}
	return again
}

// greeted closes the breaker of a peer that is connected and has called by itself.
func (b *breaker) greeted(now time.Time) {
	b.heard = now
	b.timeouts = 0
	b.healthy = true
}

// tick is called every probeEvery. It reports whether to send a ping now. Time in which this node itself was stopped, as a late call
// shows, is no silence of the peer.
func (b *breaker) tick(now time.Time) (ping bool) {
	stopped := now.Sub(b.ticked) - probeEvery
	if b.ticked.IsZero() || stopped < replica.SuspendAfter {
		stopped = 0
	}
	b.ticked = now
	if stopped > 0 {
		b.heard, b.pingSent = b.heard.Add(stopped), time.Time{}
	}
	if now.Sub(b.heard) >= silence {
		b.healthy = false
	}
	quiet := now.Sub(b.heard) >= probeEvery || stopped > 0
	if b.pingSent.IsZero() && (quiet || !b.healthy) {
		b.pingSent = now
		return true
	}
	return false
}
