package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/weirlimit/weir/rules/internal/problem"
)

type patternKind uint8

const (
	kindExact patternKind = iota
	kindPrefix
	kindRegexp
	kindAny
	kindBlock
)

const regexpMark = "re:"

// pattern is one value of a condition. text comes without mark and star.
type pattern struct {
	kind   patternKind
	text   string
	regexp *regexp.Regexp // of kindRegexp
	block  netip.Prefix   // of kindBlock
}

// String returns the pattern as files write it.
func (p pattern) String() string {
	switch p.kind {
	case kindPrefix:
		return p.text + "*"
	case kindRegexp:
		return regexpMark + p.text
	case kindAny:
		return "*"
	case kindExact, kindBlock:
	}
	return p.text
}

// parsePattern reads one value of a condition. budget is what expressions may
// still take, in bytes. The error continues a sentence that begins with the value.
func parsePattern(s string, budget *int) (pattern, error) {
	if text, ok := strings.CutPrefix(s, regexpMark); ok {
		return parseRegexp(text, budget)
	}
	if len(s) > maxValue {
		return pattern{}, fmt.Errorf("has %d bytes, more than %d", len(s), maxValue)
	}
	star := strings.IndexByte(s, '*')
	switch {
	case s == "*":
		return pattern{kind: kindAny}, nil
	case star < 0:
		return pattern{kind: kindExact, text: s}, nil
	case star < len(s)-1:
		return pattern{}, errors.New(`has a '*' before its end; it may only end a prefix, as in "/api/*"; write all else as an expression, such as re:/api/[^/]*/posts`)
	}
	return pattern{kind: kindPrefix, text: s[:star]}, nil
}

// errRegexpMemory is a budget that is used up.
var errRegexpMemory = fmt.Errorf("is more than the rules can hold: all expressions together may take %d MiB", maxRegexpMemory>>20)

// parseRegexp compiles an expression for the whole of a value, in which a dot is any
// character: callers choose values, and a newline must not keep a rule from them. What it has looked
// at is taken from the budget, good or bad: otherwise a file of bad ones would
// keep it busy for minutes.
func parseRegexp(text string, budget *int) (pattern, error) {
	switch {
	case text == "":
		return pattern{}, errors.New("has no expression; write one after re:, such as re:/v[12]/.*")
	case len(text) > maxRegexp:
		return pattern{}, fmt.Errorf("has %d bytes after re:, more than %d", len(text), maxRegexp)
	case *budget < 0:
		return pattern{}, errRegexpMemory
	}
	// On its own first, or "a)|(b" would escape from the group.
	tree, err := syntax.Parse(text, syntax.Perl|syntax.DotNL)
	if err != nil {
		return pattern{}, fmt.Errorf("does not compile: %w", trimRegexpError(err))
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return pattern{}, fmt.Errorf("does not compile: %w", trimRegexpError(err))
	}
	if n := len(program.Inst); n > maxInstructions {
		*budget -= memoryOf(program)
		return pattern{}, fmt.Errorf("is too complex: %d instructions, more than %d", n, maxInstructions)
	}
	if *budget -= memoryOf(program); *budget < 0 {
		return pattern{}, errRegexpMemory
	}
	re, err := regexp.Compile(`\A(?s:` + text + `)\z`)
	if err != nil { // a \Q without its \E, which has swallowed the end of ours
		return pattern{}, errors.New(`does not compile: \Q without \E`)
	}
	return pattern{kind: kindRegexp, text: text, regexp: re}, nil
}

// memoryOf estimates what a regexp.Regexp of the program takes, in bytes. It keeps
// two programs, and tables of the character ranges.
func memoryOf(program *syntax.Prog) int {
	bytes := 1024
	for i := range program.Inst {
		bytes += 128 + 8*len(program.Inst[i].Rune)
	}
	return bytes
}

// trimRegexpError leaves out "error parsing regexp: ".
func trimRegexpError(err error) error {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return fmt.Errorf("%s: %s", e.Code, problem.Quote(e.Expr))
	}
	return err
}
