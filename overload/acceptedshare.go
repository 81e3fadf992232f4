package overload

import (
	"math"
	"time"
)

// Constants of the rule.
const (
	interval   = 100 * time.Millisecond // for which a queue must stand, as in CoDel
	minWaiting = 32                     // calls that may always wait for the processor
	leastShare = 1.0 / 64               // of calls, that is accepted in any case
	below      = 0.95                   // of what the node has answered while it was late: what it accepts then
	fallen     = 0.75                   // of its capacity: at less the load has fallen
	smoothing  = 200 * time.Millisecond // of the rate by which that is seen
	doubling   = time.Second            // in which the share doubles that the node accepts, while it is in time
	perRefusal = 0.25                   // of the time of a decision, which a refusal takes
)

// share is the rule by which a node refuses calls: the share of them that it accepts, by how late its probes come
// back. As in CoDel (Nichols and Jacobson, 2012) a queue that drains within an interval is a burst, and only one
// that stands for longer is too much. Then the node accepts hardly any call until the queue has drained. As it was
// busy all the time, it has just answered as many calls as it can while it refuses others, and accepts a little less than
// that from then on. Refusals take time, too, which it has for other calls once the load has fallen.
//
// It is a pure state machine; make it with newShare.
type share struct {
	target   time.Duration // lateness that is permitted
	open     float64       // share of work that is accepted while the queue does not drain; leastShare <= open <= 1
	draining bool

	since time.Time // when a probe was late for the first time, without one in time after it; zero if none was
	calls counts    // that came after since
	from  time.Time // probes that were sent before say nothing of the queue after the change

	last     time.Time // when offered was brought up to date
	offered  float64   // work per second
	capacity float64   // work per second that the node could have answered while it was late, had it refused none
}

// counts are numbers of calls, and their work. A call of many checks is worth several calls.
type counts struct {
	accepted int64 // below 0 if calls are refused that were accepted before the last probe
	atOnce   int   // that wait at once, as is known since the node is late

	work, refused float64 // of calls that were accepted and refused
}

func newShare(target time.Duration, now time.Time) share {
	return share{target: target, open: 1, from: now, last: now}
}

// accepted returns the share of work to accept.
func (s *share) accepted() float64 {
	if s.draining {
		return leastShare
	}
	return s.open
}

// observe records a probe that was sent at sent and came back at now, and the calls since the probe
// before.
func (s *share) observe(sent, now time.Time, calls counts) {
	passed := now.Sub(s.last)
	s.smooth(passed, calls)
	s.last = now
	if !s.since.IsZero() {
		s.calls.accepted += calls.accepted
		s.calls.work += calls.work
		s.calls.refused += calls.refused
		s.calls.atOnce = calls.atOnce
	}
	late := now.Sub(sent)
	switch {
	case sent.Before(s.from):
	case late <= s.target && s.draining:
		s.resume(now)
	case late <= s.target:
		s.since = time.Time{}
		s.raise(passed)
	case s.since.IsZero():
		s.since, s.calls = now, counts{}
	case !s.draining && now.Sub(s.since) >= interval && s.waiting(late, now) > minWaiting:
		s.draining, s.from = true, now
	}
}

// smooth brings the rate of work up to date: calls that came longer ago than smoothing hardly count.
func (s *share) smooth(passed time.Duration, calls counts) {
	if passed > 0 {
		weight := 1 - math.Exp(-passed.Seconds()/smoothing.Seconds())
		s.offered += weight * ((calls.work+calls.refused)/passed.Seconds() - s.offered)
	}
}

// waiting is how many of the accepted calls wait on average: by Little's law, their rate times the lateness, but no more than
// were seen at once. While these are few it is not they that make the node late, and refusing would not make it faster.
func (s *share) waiting(late time.Duration, now time.Time) float64 {
	return min(float64(s.calls.atOnce), float64(s.calls.accepted)/now.Sub(s.since).Seconds()*late.Seconds())
}

// late reports whether a queue may stand.
func (s *share) late() bool { return !s.since.IsZero() }

// resume ends that the queue drains.
func (s *share) resume(now time.Time) {
	s.capacity = (s.calls.work + perRefusal*s.calls.refused) / now.Sub(s.since).Seconds()
	s.open = max(leastShare, below*s.calls.work/max(1, s.calls.work+s.calls.refused))
	s.draining, s.since, s.from = false, time.Time{}, now
}

// raise raises the share: slowly, so that calls hardly ever wait, and to all at once when the load has fallen.
func (s *share) raise(passed time.Duration) {
	s.open *= math.Exp2(min(1, passed.Seconds()/doubling.Seconds()))
	if s.open > 1 || s.offered < fallen*s.capacity {
		s.open = 1
	}
}
