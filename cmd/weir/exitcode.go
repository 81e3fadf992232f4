package main

import (
	"errors"
)

// exitError makes the program end with a code other than 2, or says nothing, or names a help.
type exitError struct {
	err  error  // what to say; nil says nothing
	code int    // the exit code
	help string // the command whose help explains the mistake; empty for none
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exitCode is 2 for any error that does not say another.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exitError](err); ok {
		return exit.code
	}
	return 2
}
