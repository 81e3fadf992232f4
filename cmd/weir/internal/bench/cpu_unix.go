//go:build unix

package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// ownCPU is the user and system time of this process.
func ownCPU() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
