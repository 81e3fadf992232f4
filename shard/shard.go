// Package shard provides the counters of one node: the only mutable state of the
// limiter.
//
// The node's share of the ring is cut into partitions, each a table behind one
// mutex. Decide locks the partitions that a group touches, reads the clock, takes
// one step of package algorithms per counter, and keeps the result or throws it
// away as a whole.
package shard

import (
	"cmp"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config configures a Shard. Every field is required, except for MaxLongBytes, Relieve and Wall.
type Config struct {
	// Partitions is the ring's number of partitions.
	Partitions uint32
	// MaxBytes bounds the memory of the counters' tables, at least MinBytes. A new counter beyond it
	// replaces an old one: one that has expired, or else one that has used little of its limit, never half
	// of it or more. If there is none, the counter is shared with others of the same limit.
	MaxBytes int
	// MaxLongBytes bounds the memory of the counters of long algorithms, except for those of one group per
	// partition. Beyond it a counter replaces others. 0 means DefaultMaxLongBytes.
	MaxLongBytes int64
	// Relieve, unless nil, is called by Run once per round of 10 s in which 16 MiB or more were returned to
	// the kernel: the load for which the process has grown is over.
	Relieve func()
	// Wall reads the wall clock; it is called once. Later instants are its result plus the time counted by
	// the monotonic clock. nil is time.Now.
	Wall func() time.Time
	// Metrics is where the shard's metrics are registered.
	Metrics prometheus.Registerer
}

// Shard holds counters. It is safe for concurrent use; make it with New.
type Shard struct {
	partitions []partition
	tentative  []tentativeLog // by partition
	longLevels []*levels      // by partition, nil before the first long counter
	arena      *arena
	steps      atomic.Int64 // of all histories
	openLeases atomic.Int64 // of all accounts
	counters   atomic.Int64 // how many entries all tables hold; written under the lock of the table that changes
	longBytes  atomic.Int64 // of all counters of long algorithms; likewise
	maxLong    int64
	grantBytes atomic.Int64 // of all provisional grants not sent yet; likewise
	metrics    metrics
	evicted    atomic.Uint64 // live counters that were dropped
	relieve    func()        // see Config.Relieve; not nil
	urgent     atomic.Pointer[func(p uint32)]
	leaseUntil atomic.Int64 // the end of the decision lease, MaxInt64 if there is none

	// Instants are the wall clock's at start plus what the monotonic clock has
	// counted since: a step of the wall clock changes nothing.
	started   time.Time
	wallStart int64 // started by the wall clock, in Unix nanoseconds
}

// New returns an empty Shard.
func New(c Config) (*Shard, error) {
	if c.Partitions == 0 {
		return nil, fmt.Errorf("shard: partitions: 0 is not at least 1")
	}
	if least := MinBytes(c.Partitions); c.MaxBytes < least {
		return nil, fmt.Errorf("shard: max bytes: %d is not at least %d", c.MaxBytes, least)
	}
	if c.MaxBytes > maxMaxBytes {
		return nil, fmt.Errorf("shard: max bytes: %d is not at most %d", c.MaxBytes, maxMaxBytes)
	}
	if c.MaxLongBytes < 0 {
		return nil, fmt.Errorf("shard: max long bytes: %d is not at least 0", c.MaxLongBytes)
	}
	budget := c.MaxBytes/pageBytes - int(c.Partitions) // every table has one
	arena, err := newArena(budget, extraPages*int(c.Partitions))
	if err != nil {
		return nil, err
	}
	started := time.Now()
	wall := started
	if c.Wall != nil {
		wall = c.Wall()
	}
	s := &Shard{
		partitions: make([]partition, c.Partitions),
		tentative:  make([]tentativeLog, c.Partitions),
		longLevels: make([]*levels, c.Partitions),
		arena:      arena,
		maxLong:    cmp.Or(c.MaxLongBytes, DefaultMaxLongBytes),
		relieve:    c.Relieve,
		started:    started,
		wallStart:  wall.UnixNano(),
	}
	if s.relieve == nil {
		s.relieve = func() {}
	}
	s.metrics = newMetrics(c.Metrics, s)
	s.SetDecisionLease(time.Time{})
	return s, nil
}

// extraPages is how many pages a table takes at most beyond its reservation: the first one, one at the end,
// and one each at both ends of a move.
const extraPages = 4

// maxMaxBytes is where the numbers of pages end.
const maxMaxBytes = math.MaxUint32 * pageBytes / 2

// MinBytes returns the least memory with which the tables of that many partitions work.
func MinBytes(partitions uint32) int { return int(partitions) * pageBytes }

// Bytes returns the memory of the counters' tables, without counters of long algorithms.
func (s *Shard) Bytes() int { return s.arena.bytes() }

// Len returns the number of counters, including expired ones that were not swept yet.
func (s *Shard) Len() int { return int(s.counters.Load()) }

// Now returns the instant at which this node would decide now, in Unix nanoseconds.
func (s *Shard) Now() int64 { return s.now() }

func (s *Shard) now() int64 { return s.wallStart + int64(time.Since(s.started)) }
