//go:build !unix

package main

import "io"

// terminalRows does not know how many lines a terminal shows, and goes by its kind of file.
func terminalRows(w io.Writer) (rows int, ok bool) { return 0, isTerminal(w) }
