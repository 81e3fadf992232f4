//go:build !linux

package node

import "syscall"

// limitUnacknowledged does nothing: only Linux has TCP_USER_TIMEOUT.
func limitUnacknowledged(_, _ string, _ syscall.RawConn) error { return nil }
