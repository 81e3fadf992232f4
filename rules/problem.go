package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

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

	cause error
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
		b.WriteString("rule " + quote(p.Rule) + ": ")
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	return b.String() + p.Message
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
		if p.cause != nil {
			causes = append(causes, p.cause)
		}
	}
	return causes
}

// problems collects the first maxProblems by position, however many there are.
// The zero value is empty.
type problems struct {
	list  []Problem // len(list) < 2*maxProblems
	total int
}

func (ps *problems) add(p Problem) {
	ps.total++
	ps.list = append(ps.list, p)
	if len(ps.list) == 2*maxProblems {
		ps.cut()
	}
}

func (ps *problems) cut() {
	slices.SortStableFunc(ps.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	ps.list = ps.list[:min(len(ps.list), maxProblems)]
}

// sorted returns the first ones by position.
func (ps *problems) sorted() []Problem {
	ps.cut()
	return ps.list
}

// err returns nil if there are none.
func (ps *problems) err() error {
	if ps.total == 0 {
		return nil
	}
	return &LoadError{Problems: ps.sorted(), More: ps.total - min(ps.total, maxProblems)}
}

// quote returns s as messages show it: escaped, and cut if it is long.
func quote(s string) string {
	const most = 64 // bytes
	if len(s) <= most {
		return strconv.Quote(s)
	}
	cut := most
	for cut > most-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "..."
}
