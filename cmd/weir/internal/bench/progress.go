package bench

import (
	"context"
	"sync"
	"time"
)

// progressEvery is how often progress is told.
const progressEvery = time.Second

// Tell is told how it goes.
type Tell func(text string)

// every has what say returns told from time to time, until the function that it returns is
// called.
func (t Tell) every(say func() string) (end func()) {
	if t == nil {
		return func() {}
	}
	stop := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() {
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				t(say())
			case <-stop:
				return
			}
		}
	})
	return func() {
		close(stop)
		teller.Wait()
	}
}

// Progress is how far a run has come.
type Progress struct {
	Elapsed time.Duration
	Counts
}

// tell reports progress until ctx ends.
func (r *run) tell(ctx context.Context, progress func(Progress)) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if progress != nil {
			progress(Progress{Elapsed: time.Since(r.started), Counts: r.counts()})
		}
	}
}
