package rules

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
