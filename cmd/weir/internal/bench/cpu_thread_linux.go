package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadCPU is the processor time of the thread that asks, which only goes on while it runs.
func threadCPU() (time.Duration, bool) {
	var at unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at)
	return time.Duration(at.Nano()), err == nil
}
