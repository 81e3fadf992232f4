package e2e

import (
	"os"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/pageplayer"
)

// Programs that the documents run and this test runs. What else they show installs, builds or measures.
var programs = []string{"weir", "curl", "go run ./cmd/weir"}

// Every command of the README works, and prints what it shows.
func TestReadmeShowsRealOutput(t *testing.T) {
	t.Parallel()
	showsRealOutput(t, "README.md")
}

func TestPageOnRulesShowsRealOutput(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	showsRealOutput(t, "docs/change-rules.md")
}

func TestPageOnSizingShowsRealOutput(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	showsRealOutput(t, "docs/operations/sizing.md")
}

// showsRealOutput fails the test unless every command of a document works, and prints what is shown.
func showsRealOutput(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	d := pageplayer.New(t, name)
	for _, s := range pageplayer.Steps(string(text), programs) {
		d.Do(s)
	}
	if d.Compared == 0 {
		t.Errorf("%s shows no output", name)
	}
}
