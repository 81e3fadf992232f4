package rules

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/problem"
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

// SyntaxProblem says where and why data, read from the file of that name, is not YAML,
// and what to write instead if err, the parser's error, is of a common mistake.
func SyntaxProblem(name string, data []byte, err error) Problem {
	p := Problem{File: name}
	load, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		p.Message = "not valid YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
		return p
	}
	at, why := explainSyntax(data, load)
	if at.Line > 0 {
		p.Line, p.Column = at.Line, max(1, at.Column)
	}
	p.Message = "not valid YAML: " + why
	return p
}

// explainSyntax returns the position of the mistake behind an error, which may be before
// the place where the parser noticed it, and what it is.
func explainSyntax(data []byte, e *yaml.LoadError) (yaml.Mark, string) {
	line := lineOf(data, e.Mark.Line)
	before, from := cutColumn(line, e.Mark.Column)
	switch {
	case strings.HasPrefix(from, "\t"):
		return e.Mark, "a tab cannot stand here; write spaces instead"
	case e.ContextMsg == "while scanning an alias", e.ContextMsg == "while scanning an anchor":
		before, from = cutColumn(lineOf(data, e.ContextMark.Line), e.ContextMark.Column)
		return e.ContextMark, reserved(before, from)
	case strings.HasPrefix(e.Message, "unknown anchor"):
		return e.Mark, "no anchor of this name stands before; " + reserved(before, from)
	case e.Message == "found character that cannot start any token" && from != "":
		return e.Mark, reserved(before, from)
	case e.Message == "found unknown escape character":
		return e.Mark, `"\" begins an escape within double quotes, and this is none; write \\, or put the text in single quotes`
	case e.ContextMsg == "while scanning a quoted scalar":
		return e.ContextMark, "the quote that begins here is not closed"
	case e.ContextMsg == "while parsing a flow sequence", e.ContextMsg == "while parsing a flow mapping", e.ContextMsg == "while parsing a flow node":
		return explainFlow(e)
	case e.Message == "mapping values are not allowed in this context":
		return e.Mark, explainColon(before)
	case e.Message == "could not find expected ':'":
		return e.ContextMark, "a key without a colon; write KEY: VALUE"
	case e.Message == "did not find expected '-' indicator", e.Message == "did not find expected key":
		return e.Mark, explainBlock(before, from, e.ContextMark)
	case e.Stage == "reader":
		return markOf(data, e.Mark.Index), e.Message
	}
	return e.Mark, e.Message
}

// reserved explains a value that begins with a character which YAML has another use for.
// before is what stands before it in its line.
func reserved(before, from string) string {
	first, _ := utf8.DecodeRuneInString(from)
	return fmt.Sprintf("a value cannot begin with %c; put it in quotes: %s", first, inQuotes(plainValue(before, from)))
}

// explainFlow is for a list or mapping in brackets.
func explainFlow(e *yaml.LoadError) (yaml.Mark, string) {
	what, closer := "list", "]"
	if e.ContextMsg == "while parsing a flow mapping" {
		what, closer = "mapping", "}"
	}
	if e.ContextMsg == "while parsing a flow node" {
		return e.Mark, "a value is missing, or a bracket is not closed"
	}
	return e.ContextMark, fmt.Sprintf("the %s that begins here lacks a comma or its %s before line %d, column %d", what, closer, e.Mark.Line, e.Mark.Column)
}

// explainColon is for a colon where no key can be. before is what stands before it in
// its line.
func explainColon(before string) string {
	if strings.Contains(before, ": ") {
		return `a value cannot contain a colon and a space; put it in quotes`
	}
	return "a key cannot stand here; the line before may lack its colon or the space behind it, or this line is indented too far"
}

// explainBlock is for what is neither a key of the mapping nor an item of the list that
// begins at a mark. before and from are what stands before and behind it in its line.
func explainBlock(before, from string, begin yaml.Mark) string {
	switch {
	case strings.TrimSpace(before) != "":
		return "a value has ended here; put all of it in quotes"
	case strings.HasPrefix(from, "-") && len(before)+1 == begin.Column:
		return fmt.Sprintf("a list item cannot stand among the keys that begin in line %d", begin.Line)
	}
	return fmt.Sprintf("the indentation fits nothing before; what begins in line %d has its keys or items in column %d", begin.Line, begin.Column)
}

// plainValue returns the value with which from begins, as its author meant it: up to a
// comment, or, within brackets, to what ends it there.
func plainValue(before, from string) string {
	value, _, _ := strings.Cut(from, " #")
	if strings.Count(before, "{")+strings.Count(before, "[") > strings.Count(before, "}")+strings.Count(before, "]") {
		if end := strings.IndexAny(value, ",]}"); end >= 0 {
			value = value[:end]
		}
	}
	return strings.TrimSpace(value)
}

// inQuotes returns text, cut if it is long, as YAML in quotes.
func inQuotes(text string) string {
	if strings.ContainsAny(text, `"\`) {
		return "'" + strings.ReplaceAll(problem.Cut(text), "'", "''") + "'"
	}
	return problem.Quote(text)
}

// lineOf returns a line by its number, which counts from 1, or "".
func lineOf(data []byte, number int) string {
	for ; number > 1; number-- {
		_, rest, found := bytes.Cut(data, []byte("\n"))
		if !found {
			return ""
		}
		data = rest
	}
	line, _, _ := bytes.Cut(data, []byte("\n"))
	return strings.TrimSuffix(string(line), "\r")
}

// markOf returns the line and the column of a byte.
func markOf(data []byte, offset int) yaml.Mark {
	before := data[:min(max(0, offset), len(data))]
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return yaml.Mark{Line: bytes.Count(before, []byte("\n")) + 1, Column: utf8.RuneCount(line) + 1}
}

// cutColumn cuts a line before a column, which counts characters from 1.
func cutColumn(line string, column int) (before, from string) {
	at := 0
	for range column - 1 {
		_, size := utf8.DecodeRuneInString(line[at:])
		at += size
	}
	return line[:at], line[at:]
}
