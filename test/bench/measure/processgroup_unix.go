//go:build unix

package measure

import (
	"os/exec"
	"syscall"
	"time"
)

// endTogether has all processes that a command starts be killed when its context ends: go
// test would leave its test behind, and that the nodes that it has started.
func endTogether(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}
