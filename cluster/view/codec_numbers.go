package view

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// numberReader reads varints. It stops at the first error.
type numberReader struct {
	rest []byte
	err  error
}

func (in *numberReader) fail(format string, args ...any) {
	if in.err == nil {
		in.err = fmt.Errorf(format, args...)
	}
}

// number reads a number that is at most most, in as few bytes as it takes.
func (in *numberReader) number(what string, most uint64) uint64 {
	if in.err != nil {
		return 0
	}
	n, size := binary.Uvarint(in.rest)
	switch {
	case size <= 0:
		in.err = fmt.Errorf("%s: %w", what, errWithinNumber)
		return 0
	case size > 1 && in.rest[size-1] == 0:
		in.fail("%s: %d stands in %d bytes, which are too many", what, n, size)
	case n > most:
		in.fail("%s: %d is above %d", what, n, most)
	}
	if in.err != nil {
		return 0
	}
	in.rest = in.rest[size:]
	return n
}

var errWithinNumber = errors.New("it ends within a number")

// text reads a length, at most most, and as many bytes.
func (in *numberReader) text(what string, most int) string {
	n := in.number(what, uint64(most))
	if in.err == nil && n > uint64(len(in.rest)) {
		in.fail("%s: it ends %d bytes before the end of the text", what, n-uint64(len(in.rest)))
	}
	if in.err != nil {
		return ""
	}
	text := string(in.rest[:n])
	in.rest = in.rest[n:]
	return text
}
