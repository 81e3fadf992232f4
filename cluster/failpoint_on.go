//go:build failpoint

package cluster

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// failpointVariable names the place where the process ends, and how often it must have come by:
// "sealed:3".
const failpointVariable = "WEIR_FAILPOINT"

var (
	failpointName, failpointCount, _ = strings.Cut(os.Getenv(failpointVariable), ":")
	failpointPassed                  atomic.Int64
)

// failpoint ends the process as a crash would, if this is where it is to end.
func failpoint(name string) {
	if name != failpointName {
		return
	}
	if at, err := strconv.ParseInt(failpointCount, 10, 64); err == nil && failpointPassed.Add(1) < at {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // it cannot fail for oneself
	select {}
}
