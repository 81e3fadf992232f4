package cluster

import "time"

// lagWindow is for how long the fastest frame of a connection is remembered, at least: two clocks that drift
// apart by 100 ppm differ by 0.5 ms after it.
const lagWindow = 5 * time.Second

// stamp is an instant of a monotonic clock, in microseconds since a fixed instant. It begins again after
// 71 minutes, so two stamps can be compared if they are of the same half hour.
type stamp uint32

// stampOf returns now as a stamp of a clock that counts from base.
func stampOf(base, now time.Time) stamp { return stamp(now.Sub(base) / time.Microsecond) }

// since returns how much later s is than t.
func (s stamp) since(t stamp) time.Duration { return time.Duration(int32(s-t)) * time.Microsecond }

// lag estimates how long each frame of a connection has waited on its way, for example for a process that was
// stopped. A frame says when it was sent by its sender's clock, which may differ from this node's by
// anything. But the fastest of the last frames has hardly waited, and each other one has waited for as much
// longer as it seems to have taken longer.
//
// The zero value has seen no frame. It is a pure state machine.
type lag struct {
	base  time.Time        // when the first frame came; what this node's stamps count from
	turn  time.Time        // when the present window began
	clock stamp            // received less sent, of the first frame of the window before the present one
	least [2]time.Duration // received less sent, beyond clock: the least of the window before, and of the present one
}

// of returns how long a frame that was sent and received at these instants has waited.
func (l *lag) of(sent stamp, received time.Time) time.Duration {
	if l.base.IsZero() {
		l.base, l.turn = received, received
		l.clock = -sent
	}
	took := (stampOf(l.base, received) - sent).since(l.clock)
	if received.Sub(l.turn) >= lagWindow {
		l.turn = received
		l.clock += stamp(l.least[1] / time.Microsecond)
		took -= l.least[1]
		l.least = [2]time.Duration{0, took}
	}
	l.least[1] = min(l.least[1], took)
	return took - min(l.least[0], l.least[1])
}
