package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// next reads one document. The parser is known to panic on some malformed input,
// which is then an error like any other.
func next(yamls *yaml.Decoder, n *yaml.Node) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("yaml: %v", v)
		}
	}()
	return yamls.Decode(n)
}

// yamlMark is what the parser puts before its messages.
var yamlMark = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// lineReader hands out data line by line, so that the parser has read no more than it
// needed when it fails.
type lineReader struct {
	rest []byte
	read int // lines, the one under way included
	open bool
}

func (r *lineReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	if !r.open {
		r.read++
	}
	line, _, ended := bytes.Cut(r.rest, []byte("\n"))
	length := len(line)
	if ended {
		length++
	}
	n := copy(p, r.rest[:length])
	r.rest, r.open = r.rest[n:], n < length
	return n, nil
}

// syntaxProblem says what the parser's error means, which it has found when it had read
// so many lines. It knows no column.
func syntaxProblem(src source, read int, err error) Problem {
	mark := yamlMark.FindStringSubmatch(err.Error())
	message := err.Error()[len(mark[0]):]
	line, _ := strconv.Atoi(mark[1]) // 0, unknown, if there is none
	if len(src.data) <= maxSearched {
		line = syntaxLine(src.data, read, message)
	}
	return Problem{File: src.name, Line: line, Message: "not valid YAML: " + message}
}

// maxSearched is the longest file, in bytes, that is parsed again for the line of an error:
// mostly twice, and some 15 times for a quote that is never closed.
const maxSearched = 256 << 10

// syntaxLine returns the first line with which the data begins to fail with the
// message, which it does at the latest when so many lines are read. The parser's own lines
// are off by one or more, or those of the end of the file instead of the quote that was
// never closed.
func syntaxLine(data []byte, read int, message string) int {
	ends := []int{0} // of lines, by their number
	for _, line := range bytes.SplitAfter(data, []byte("\n"))[:read] {
		ends = append(ends, ends[len(ends)-1]+len(line))
	}
	fails := func(line int) bool { return syntaxMessage(data[:ends[line]]) == message }
	for range 2 { // so far the parser looks ahead
		if !fails(read - 1) {
			return read
		}
		read--
	}
	return 1 + sort.Search(read-1, func(i int) bool { return fails(i + 1) })
}

// syntaxMessage returns why data is not YAML, or "".
func syntaxMessage(data []byte) string {
	yamls := yaml.NewDecoder(&lineReader{rest: data})
	for {
		var n yaml.Node
		switch err := next(yamls, &n); {
		case errors.Is(err, io.EOF):
			return ""
		case err != nil:
			return yamlMark.ReplaceAllString(err.Error(), "")
		}
	}
}
