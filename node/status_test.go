package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"
)

// setView makes n route by a view of these members.
func setView(t *testing.T, n *node, members ...cluster.Member) {
	t.Helper()
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	r, err := ring.Build(ring.DefaultParams, ids)
	if err != nil {
		t.Fatal(err)
	}
	n.router.SetView(&cluster.View{Number: 1, Members: members, Ring: r})
}

// A node says whether its rules are its own.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("{domain: d, rules: []}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"": false, file: true} {
		opts := testOptions(t)
		opts.Rules = path
		n, err := build(t.Context(), Network{}, opts, quiet())
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Self().OwnRules; got != want {
			t.Errorf("with --rules %q: %t", path, got)
		}
		n.close()
	}
}
