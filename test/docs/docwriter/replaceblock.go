package docwriter

import (
	"bytes"
	"fmt"
)

// markers are the lines between which a command writes.
func markers(command string) (begin, end []byte) {
	return fmt.Appendf(nil, "<!-- written by %s -->\n", command), []byte("<!-- end -->\n")
}

// Replace puts a block in the place of the one between the markers of a command:
//
//	<!-- written by COMMAND -->
//	...
//	<!-- end -->
//
// A command that writes several adds to COMMAND which one.
func Replace(text []byte, command string, block []byte) ([]byte, error) {
	begin, end := markers(command)
	before, rest, found := bytes.Cut(text, begin)
	if !found {
		return nil, fmt.Errorf("there is no line %q", begin)
	}
	_, after, found := bytes.Cut(rest, end)
	if !found {
		return nil, fmt.Errorf("there is no line %q", end)
	}
	return bytes.Join([][]byte{before, begin, block, end, after}, nil), nil
}
