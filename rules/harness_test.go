package rules

import (
	"fmt"
	"runtime/debug"
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// racing says whether the race detector is at work. It makes pools, those of regexp
// among them, forget at random, so that nothing is sure not to allocate.
func racing() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// parse returns the set of a document that has no problems.
func parse(t testing.TB, text string) *Set {
	t.Helper()
	set, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return set
}

// oneRule returns a document with one rule in line 3.
func oneRule(rule string) string { return fmt.Sprintf("domain: d\nrules:\n- %s\n", rule) }
