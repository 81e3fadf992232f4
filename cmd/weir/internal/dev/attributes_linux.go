package dev

import "syscall"

// attributes have a process be killed when the one that started it dies, even if it was stopped. Ctrl-C in a terminal is not sent
// to it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
