package bench

import (
	"context"
	"os"
	"runtime/debug"
	"time"
)

// residentBytes is what this process has in memory without garbage, or 0 where that
// is not known.
func residentBytes() int64 {
	debug.FreeOSMemory()
	return rss()
}

// settleFor is how long memory that is not needed any more is waited for: the sweeper looks
// every tenth of a second.
const settleFor = 2 * time.Second

// settled returns what this process has in memory when that has been given back.
func settled(ctx context.Context) int64 {
	wait := time.NewTimer(settleFor)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
	}
	return residentBytes()
}

// rss is what this process has in memory, or 0 where that is not known.
func rss() int64 {
	_, rss, err := readProcess(os.Getpid())
	if err != nil {
		return 0
	}
	return rss
}

// watchPeak looks how much memory this process has until the returned function is called,
// which returns the most.
func watchPeak() (end func() int64) {
	done, most := make(chan struct{}), make(chan int64)
	go func() {
		tick := time.NewTicker(cardinalityLook)
		defer tick.Stop()
		peak := rss()
		for {
			select {
			case <-tick.C:
				peak = max(peak, rss())
			case <-done:
				most <- max(peak, rss())
				return
			}
		}
	}()
	return func() int64 {
		close(done)
		return <-most
	}
}
