package cluster

import (
	"sync/atomic"
	"time"
)

// fill fills a channel that has room for one, unless it is full.
func fill(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pauseFor waits so long, or until end is closed.
func pauseFor(end <-chan struct{}, wait time.Duration) {
	if wait <= 0 {
		return
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-over.C:
	case <-end:
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// raise makes v at least to.
func raise(v *atomic.Int64, to int64) {
	for {
		if old := v.Load(); old >= to || v.CompareAndSwap(old, to) {
			return
		}
	}
}
