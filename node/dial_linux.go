package node

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unacknowledged is how long data that was sent to another node may stay unacknowledged before the connection is given up (RFC 5482).
// Without it, TCP sends again after ever longer pauses, and goes on only seconds after the network is whole again; a new connection is
// made at once. The other node's kernel acknowledges what it receives, also while that node is busy or stopped.
const unacknowledged = 1500 * time.Millisecond

// limitUnacknowledged sets TCP_USER_TIMEOUT of a socket that connects to another node.
func limitUnacknowledged(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
	})
	if err != nil {
		return err
	}
	return failed
}
