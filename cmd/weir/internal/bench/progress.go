package bench

import (
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
