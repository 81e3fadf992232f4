//go:build unix && !linux

package dev

import "syscall"

// sysProcAttr has Ctrl-C in a terminal not be sent to a process.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
