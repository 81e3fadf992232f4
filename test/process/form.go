package process

import (
	"flag"
	"testing"
)

// Form is how long tests take: the short form is for go test ./..., the full one for a target of the Makefile.
type Form struct {
	target string
	full   *bool
}

// NewForm defines the flag -full, with its usage. A target of the Makefile passes it. It is for a variable of a test's package,
// before flags are parsed.
func NewForm(target, usage string) Form { return Form{target, flag.Bool("full", false, usage)} }

// Full reports whether the form is the full one.
func (f Form) Full() bool { return *f.full }

// FullOnly skips a test in the short form.
func (f Form) FullOnly(t testing.TB) {
	t.Helper()
	if !f.Full() {
		t.Skip("in the full form only: make " + f.target)
	}
}

// NotWhileRacing skips a test whose load would be too much for nodes with the race detector.
func NotWhileRacing(t testing.TB) {
	t.Helper()
	if RaceEnabled {
		t.Skip("the race detector makes nodes too slow; test/e2e has it")
	}
}
