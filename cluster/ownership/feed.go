package ownership

import (
	"context"
	"slices"
	"time"
)

// feed sends a peer the changes that it is to have, and some of the copies that are not complete yet, and returns how long to rest. It takes its time
// over these copies: checks are decided meanwhile, on as few processors. A peer that cannot take a final state yet is soon sent it again. Copies says
// that it is time for copies, and the first call need carry no more.
func (c *sender) feed(ctx context.Context, copies bool) (rest time.Duration) {
	defer func() {
		if c.retry {
			c.retry = false
			fill(c.soon)
		}
	}()
	for {
		changes, more := c.pack(copies)
		if len(changes) > 0 && (c.way == 0 && !c.send(ctx, nil) || !c.send(ctx, changes)) {
			return feedEvery
		}
		c.copies.rest(min(copyRest*c.worked, copyRestMost))
		if !more {
			return hurryEvery
		}
		copies = false
		c.pause(ctx, min(feedRest*c.worked, feedRestMost))
	}
}

// pack returns one message of each partition of which a peer is to have something, as far as they fit into a call, and whether there is more than
// copies that are not complete. Copies has it look no further once the call has no more room for these.
func (c *sender) pack(copies bool) (changes []*Changes, more bool) {
	wasDue := !copies && c.renewFinal()
	c.ends = false
	changes, more, all := c.packMessages(copies)
	if c.ends || wasDue && !all {
		c.noteFinal()
	}
	return changes, more
}

// packMessages does so, and reports whether it has looked at all partitions.
func (c *sender) packMessages(copies bool) (changes []*Changes, more, all bool) {
	partitions, size := c.partitions(), 0
	first, _ := slices.BinarySearch(partitions, c.turn)
	turn := c.turn
	c.copies.begin(c.way, c.node.isOver.Load())
	for i := range partitions {
		if copies && c.copies.room <= 0 {
			c.copies.more = true
			break
		}
		p := partitions[(first+i)%len(partitions)]
		if size >= messageBytes { // it is the first one next time
			c.turn, c.copies.more = p, true
			return changes, true, false
		}
		had := c.copies.room
		m, again := c.node.parts[p].collect(c)
		if m == nil {
			continue
		}
		if had > 0 && c.copies.room <= 0 {
			turn = c.copies.turn()
		}
		changes = append(changes, m)
		size += len(m.Records)
		more = more || again
	}
	c.turn = turn
	return changes, more, true
}

// send sends changes, and reports whether they were answered. What a call takes beyond the least that one has taken, nodes have worked for it, or were
// too busy to: so TCP Vegas tells queues from distance (Brakmo and Peterson, 1995: BaseRTT). The first call of a peer has no changes.
func (c *sender) send(ctx context.Context, changes []*Changes) bool {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	began := time.Now()
	receipts, err := c.node.Peers.Feed(call, c.life, changes, c.finalDue())
	if err != nil || len(receipts) != len(changes) {
		return false
	}
	took := time.Since(began)
	if c.way == 0 || took < c.way {
		c.way = took
	}
	c.worked = took - c.way
	for i, m := range changes {
		c.node.parts[m.Partition].sent(c, m, receipts[i], began)
	}
	return true
}
