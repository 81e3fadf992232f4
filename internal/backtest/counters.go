package backtest

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// counters holds the state of every limit for every key that is live. What an unused counter decides alike is dropped.
type counters struct {
	index   map[ring.Key]int32
	slots   []counter
	free    []int32 // of slots
	now     int64   // of the check at hand
	sweepAt int     // len(index) at which expired counters are looked for next
	ended   func(*counter)
	made    int64
	most    int // the most that were live at once
}

// counter is one counter, and what the report wants to know of it.
type counter struct {
	state   algorithms.State
	long    *algorithms.Long // instead of state
	key     ring.Key
	expires int64 // from then on it is as an unused one
	rule    *ruleStats
	limit   int32 // index in the rule's limits
	denied  bool  // at least once
	doubt   inexact
	text    string

	// asked are the tokens asked for in the window that ends at until, and peak those of the fullest window so far.
	asked, peak, until, cap int64
}

// sweepLeast keeps small tables from being swept all the time.
const sweepLeast = 4096

func newCounters(ended func(*counter)) *counters {
	return &counters{index: make(map[ring.Key]int32), sweepAt: sweepLeast, ended: ended}
}

// find returns the slot of a counter, -1 if there is none.
func (c *counters) find(key ring.Key) int32 {
	if i, ok := c.index[key]; ok {
		return i
	}
	return -1
}

// tidy begins a check of that instant. It drops counters that have expired, if it is time to look for them.
func (c *counters) tidy(now int64) {
	c.now = now
	if len(c.index) >= c.sweepAt {
		c.sweep(now)
	}
}

// add returns the slot of a new counter.
func (c *counters) add(key ring.Key) int32 {
	c.made++
	var i int32
	if n := len(c.free); n > 0 {
		i, c.free = c.free[n-1], c.free[:n-1]
		c.slots[i] = counter{key: key}
	} else {
		i = int32(len(c.slots))
		c.slots = append(c.slots, counter{key: key})
	}
	c.index[key] = i
	c.most = max(c.most, len(c.index))
	return i
}

// slack is how much later than the latest instant a counter must have ended to be dropped: nodes' clocks differ.
const slack = 60 * second

// sweep drops what has expired. The next sweep comes when there are twice as many counters as it leaves, so that the
// cost per line does not grow with them.
func (c *counters) sweep(now int64) {
	for key, i := range c.index {
		if e := &c.slots[i]; e.expires <= now-slack && e.until <= now-slack {
			c.ended(e)
			delete(c.index, key)
			c.slots[i] = counter{}
			c.free = append(c.free, i)
		}
	}
	c.sweepAt = max(sweepLeast, 2*len(c.index))
}

// Bytes of what is kept for one counter and for one key of a report, with their places in a map.
const (
	slotBytes = 256
	keyBytes  = 96
)

// bytes is about how much memory the counters and the lists of keys have.
func (e *engine) bytes() (n int64) {
	n = int64(cap(e.counters.slots)) * slotBytes
	for i := range e.counters.slots {
		c := &e.counters.slots[i]
		n += int64(len(c.text))
		if c.long != nil {
			n += int64(c.long.Bytes())
		}
	}
	for _, s := range e.rules {
		if s != nil {
			n += s.bytes()
		}
	}
	for _, s := range e.own {
		n += s.bytes()
	}
	return n
}

func (s *ruleStats) bytes() int64 { return int64(len(s.top.counts)) * (keyBytes + maxSubject) }

// end ends all counters.
func (c *counters) end() {
	for i := range c.slots {
		if e := &c.slots[i]; e.rule != nil {
			c.ended(e)
		}
	}
}

// ask notes that tokens were asked for.
func (e *counter) ask(now, window, cost int64) {
	if now >= e.until {
		e.endWindow()
		e.until = now - now%window + window
	}
	e.asked += cost
}

func (e *counter) endWindow() {
	if e.asked > 0 {
		e.rule.limits[e.limit].rates.add(e.asked, e.cap)
		e.peak = max(e.peak, e.asked)
		e.asked = 0
	}
}
