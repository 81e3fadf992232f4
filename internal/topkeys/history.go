package topkeys

import "time"

// Times of the lists. An interval is counted at once; the others are put together from intervals.
const (
	interval     = 10 * time.Second
	perMinute    = int64(time.Minute / interval)
	longInterval = 5 * time.Minute
	perLong      = int64(longInterval / interval)
	perHour      = int64(time.Hour / longInterval)
)

// stamped is a summary of the interval of that number.
type stamped struct {
	frozen
	number int64
}

// history is one order of one list over the last hour. The interval that lasts is counted in current.
type history struct {
	number  int64 // of current's interval
	current summary
	minute  [perMinute]stamped   // the last full intervals
	hour    [perHour + 1]stamped // the last long intervals, without current
}

// advance ends the intervals before the one of that number.
func (h *history) advance(number int64) {
	if number <= h.number {
		return
	}
	if len(h.current.entries) > 0 {
		ended := h.current.freeze()
		h.minute[h.number%perMinute] = stamped{ended, h.number}
		long := &h.hour[h.number/perLong%int64(len(h.hour))]
		if long.number != h.number/perLong {
			*long = stamped{number: h.number / perLong}
		}
		long.frozen = mergeFrozen(long.frozen, ended, Capacity)
		h.current.reset()
	}
	h.number = number
	for i := range h.minute { // for the memory
		if h.minute[i].number < number-perMinute {
			h.minute[i].frozen = frozen{}
		}
	}
	for i := range h.hour {
		if h.hour[i].number < number/perLong-perHour {
			h.hour[i].frozen = frozen{}
		}
	}
}

// over returns what was counted in the intervals of a window that ends in the interval of that number.
func (h *history) over(w Window, number int64) []frozen {
	h.advance(number)
	parts := []frozen{h.current.freeze()}
	if w == Hour {
		for i := range h.hour {
			if h.hour[i].number >= number/perLong-perHour {
				parts = append(parts, h.hour[i].frozen)
			}
		}
		return parts
	}
	for i := range h.minute {
		if h.minute[i].number >= number-perMinute {
			parts = append(parts, h.minute[i].frozen)
		}
	}
	return parts
}

// mergeAll adds up what was counted in at least one interval.
func mergeAll(parts []frozen) frozen {
	sum := parts[0]
	for _, p := range parts[1:] {
		sum = mergeFrozen(sum, p, Capacity)
	}
	return sum
}

// secondsOf is how many seconds a window goes back at an instant after the start.
func secondsOf(w Window, now time.Duration) uint32 {
	begin := (int64(now/interval) - perMinute) * int64(interval)
	if w == Hour {
		begin = (int64(now/longInterval) - perHour) * int64(longInterval)
	}
	back := now - time.Duration(max(0, begin))
	return uint32((back + time.Second - 1) / time.Second)
}
