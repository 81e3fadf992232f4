package dev

import "syscall"

// sysProcAttr has a process be killed when the one that started it dies, even if it was stopped. Ctrl-C in a terminal is not sent
// to it.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
