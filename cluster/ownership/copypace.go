package ownership

import "time"

// copyPace is how fast a peer is sent copies that are not complete. Its goroutine owns it.
type copyPace struct {
	due  *time.Timer // fires when more of them may be sent, if there are more
	at   time.Time   // when that is
	room int         // bytes of them that the call being packed still has room for
	some bool        // the call has some
	more bool        // there are more
	of   uint32      // the partition of the last message of such a copy
	row  uint64      // how many of that there were in a row
}

// begin begins a call. Way is the least that one has taken: one piece at a time is under way, so that it is larger where a call takes longer. Hurry says that
// no checks are decided meanwhile.
func (c *copyPace) begin(way time.Duration, hurry bool) {
	c.room, c.some, c.more = min(copyBytes*int(max(1, way/copyWay)), messageBytes), false, false
	switch {
	case hurry:
		c.room = messageBytes
	case time.Now().Before(c.at):
		c.room = 0
	}
}

// add has the call carry a message of such a copy.
func (c *copyPace) add(m *Changes) {
	c.room -= len(m.Records)
	c.some, c.more = true, c.more || !m.Complete
	if m.Partition != c.of {
		c.of, c.row = m.Partition, 0
	}
	c.row++
	if !m.Complete && c.row >= max(copyTurn, m.Index/2) { // longer each time: else a long one would begin again and again, of which much changes meanwhile
		c.row = 0
	}
}

// turn returns the partition with which the next call begins: that of the last message, unless that is complete, or others are to have their turn.
func (c *copyPace) turn() uint32 {
	if c.row == 0 {
		return c.of + 1
	}
	return c.of
}

// rest has the next copies sent so long after a call that has ended just now.
func (c *copyPace) rest(wait time.Duration) {
	if c.some {
		c.at = time.Now().Add(wait)
	}
	if c.more {
		c.due.Reset(max(0, time.Until(c.at)))
	}
}
