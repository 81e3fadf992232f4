package ownership

import (
	"context"
	"time"
)

func fill(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
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

// pause waits, until ctx ends or the channel is closed, if it is not nil.
func pause(ctx context.Context, wait time.Duration, until <-chan struct{}) {
	over := time.NewTimer(wait)
	defer over.Stop()
	select {
	case <-ctx.Done():
	case <-until:
	case <-over.C:
	}
}
