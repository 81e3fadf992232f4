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

// syntaxProblem says what the parser's error means. It knows no column.
func syntaxProblem(src source, err error) Problem {
	mark := yamlMark.FindStringSubmatch(err.Error())
	message := err.Error()[len(mark[0]):]
	line, _ := strconv.Atoi(mark[1]) // 0, unknown, if there is none
	if found := syntaxLine(src.data, message); found > 0 {
		line = found
	}
	return Problem{File: src.name, Line: line, Message: "not valid YAML: " + message}
}

// syntaxLine returns the first line with which the data begins to fail with the
// message, or 0. The parser's own lines are off by one or more, or those of the
// end of the file instead of the quote that was never closed.
func syntaxLine(data []byte, message string) int {
	const most = 256 << 10 // bytes: this parses some 15 times
	if len(data) > most {
		return 0
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	ends := make([]int, len(lines))
	end := 0
	for i, l := range lines {
		end += len(l)
		ends[i] = end
	}
	i := sort.Search(len(ends), func(i int) bool { return syntaxMessage(data[:ends[i]]) == message })
	if i == len(ends) {
		return 0
	}
	return i + 1
}

// syntaxMessage returns why data is not YAML, or "".
func syntaxMessage(data []byte) string {
	yamls := yaml.NewDecoder(bytes.NewReader(data))
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
