//go:build unix && !linux

package dev

import "syscall"

// attributes have Ctrl-C in a terminal not be sent to a process.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
