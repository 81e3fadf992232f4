package shard

import (
	"context"
	"time"
)

// Bounds of the sweeper's work.
const (
	sweepTick   = 100 * time.Millisecond // how often it wakes
	sweepRound  = 10 * time.Second       // how long it takes to visit every partition
	sweepStep   = 256                    // slots visited before a partition's lock is released
	reliefPages = 4096                   // returned in one round, 16 MiB, from which on it ends with Config.Relieve
)

// sweep deletes the partition's expired entries, and continues other work on its table. It releases the
// lock every few entries, and then continues after the last key.
func (s *Shard) sweep(p *partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heat /= 2
	now := over(p.clockLocked(s.now())) // so that no later decision is at an instant before it
	for next, more := uint64(0), true; more; p.yieldLock() {
		next, more = s.sweepLocked(p, next, now)
	}
	for p.table.tidy(s.arena); p.table.moving != nil; p.yieldLock() {
		before := p.table.moving.from
		s.droppedLocked(p.table.move(s.arena, sweepStep, now))
		if p.table.moving != nil && p.table.moving.from == before {
			break // no memory
		}
	}
	s.forgetHistoriesLocked(p, p.latest)
	s.sweepLeasesLocked(p, p.latest)
	visited := 0
	for _, e := range p.long { // a range may be continued after others have changed it
		if e.expires <= now {
			s.dropLongLocked(p, e)
			s.metrics.expired.Inc()
		}
		if visited++; visited%sweepStep == 0 {
			p.yieldLock()
		}
	}
}

// sweepLocked visits a few slots from a key's high half on, and deletes those that are over at
// now. It returns where to go on, if there are more.
func (s *Shard) sweepLocked(p *partition, from uint64, now uint32) (next uint64, more bool) {
	c := p.table.seek(s.arena, from)
	dropped := 0
	defer func() { s.droppedLocked(dropped) }()
	for visited := 0; visited < sweepStep || c.i >= c.r.homes; visited++ {
		if c.i >= c.r.end() {
			if !c.nextRun() {
				return 0, false
			}
			continue
		}
		switch e := c.r.slot(s.arena, c.i); {
		case e.expires == 0:
			c.i++
			if c.i < c.r.homes {
				next = c.r.firstAt(c.i) // no later slot belongs before it
			}
		case e.expires <= now:
			next = ^e.hi
			p.table.removeAt(s.arena, c)
			dropped++
		default:
			if next = ^e.hi + 1; next == 0 {
				return 0, false
			}
			c.i++
		}
	}
	return next, true
}

// yieldLock releases the lock for a moment, for other goroutines.
func (p *partition) yieldLock() {
	p.mu.Unlock()
	p.mu.Lock()
}

// Run sweeps expired counters until ctx ends.
func (s *Shard) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepTick)
	defer tick.Stop()
	perTick := max(1, len(s.partitions)*int(sweepTick)/int(sweepRound))
	given := 0 // pages, in this round
	for next := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for range perTick {
			s.sweep(&s.partitions[next])
			next = (next + 1) % len(s.partitions)
			if next == 0 {
				if given >= reliefPages {
					s.relieve()
				}
				given = 0
				s.arena.retry()
			}
		}
		for more := true; more; {
			var n int
			n, more = s.arena.trim()
			given += n
		}
		s.arena.collapseRegions()
	}
}
