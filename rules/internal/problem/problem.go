// Package problem collects what is wrong with files, each with its place in words that a person can follow.
package problem

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Max is how many problems of one load are reported; more are counted.
const Max = 50

// Problem is one reason why rules were refused. It is a value.
type Problem struct {
	// File is the path as the caller gave it, or within the directory given.
	File string
	// Line and Column count from 1, in lines and characters. 0 means unknown.
	Line, Column int
	// Rule is the id of the rule, empty outside of rules and if it has none.
	Rule string
	// Field is the way to the value within the rule, or within the document if
	// Rule is empty, such as limits[1].window. Empty means the whole.
	Field string
	// Message says what is wrong with which value, and what is allowed.
	Message string

	// Cause is what the file system said, nil if it is no problem of that.
	Cause error
}

// String returns FILE:LINE:COLUMN: rule "ID": FIELD: MESSAGE, without what is
// unknown.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	for _, n := range []int{p.Line, p.Column} {
		if n == 0 {
			break
		}
		b.WriteString(":" + strconv.Itoa(n))
	}
	b.WriteString(": ")
	if p.Rule != "" {
		b.WriteString("rule " + Quote(p.Rule) + ": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	return b.String() + p.Message
}

// At returns the problem of a node, to which the path leads in the file of that name.
func At(file string, n *yaml.Node, at Path, format string, args ...any) Problem {
	return Problem{
		File: file, Line: n.Line, Column: n.Column,
		Rule: at.Rule, Field: at.Field, Message: fmt.Sprintf(format, args...),
	}
}

// LoadError says why rules were refused.
type LoadError struct {
	// Problems are the first ones by file and line, at least one.
	Problems []Problem
	// More is how many there are beyond Problems.
	More int
}

// Error returns one line per problem.
func (e *LoadError) Error() string {
	lines := make([]string, len(e.Problems), len(e.Problems)+1)
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", e.More))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the causes that came from the file system, so that errors.Is
// finds fs.ErrNotExist.
func (e *LoadError) Unwrap() []error {
	var causes []error
	for _, p := range e.Problems {
		if p.Cause != nil {
			causes = append(causes, p.Cause)
		}
	}
	return causes
}
