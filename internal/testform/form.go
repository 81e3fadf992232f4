// Package testform says which tests run, in which form: the short one of go test ./..., or the full one. It is for tests only.
package testform

import (
	"flag"
	"os"
	"testing"
)

// AllTests reports whether no test is to be left out, by the variable RUN_ALL_TESTS: neither for what it needs, nor for the time
// it takes.
func AllTests() bool { return os.Getenv("RUN_ALL_TESTS") != "" }

// LeaveOut skips a test for what this machine lacks, such as the rights of root, and fails it if no test is to be left out.
func LeaveOut(t testing.TB, why string) {
	t.Helper()
	if AllTests() {
		t.Fatal(why)
	}
	t.Skip(why)
}

// NotInBrief skips a test that takes long, unless all are to run: go test ./... takes a few minutes, .ci/run leaves nothing out.
func NotInBrief(t testing.TB) {
	t.Helper()
	if !AllTests() {
		t.Skip("takes long: with RUN_ALL_TESTS=1 only, as .ci/run has it")
	}
}

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

// NotInBrief is the function of that name, for a test of both forms.
func (f Form) NotInBrief(t testing.TB) {
	t.Helper()
	if !f.Full() {
		NotInBrief(t)
	}
}
