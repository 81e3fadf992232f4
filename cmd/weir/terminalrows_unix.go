//go:build unix

package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// terminalRows returns how many lines a terminal shows, 0 if it does not say. It is false for what is no terminal, such as
// /dev/null.
func terminalRows(w io.Writer) (rows int, ok bool) {
	file, ok := w.(*os.File)
	if !ok {
		return 0, false
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Row), true
}
