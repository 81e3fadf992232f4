package ui

import (
	"regexp"
	"testing"
)

// Nodes have colours of their own, however many there are.
func TestColoursOfNodes(t *testing.T) {
	seen := make(map[string]int)
	for i := range 200 {
		c := nodeColour(i)
		if !regexp.MustCompile(`^#[0-9a-f]{6}$`).MatchString(c) {
			t.Errorf("the colour of node %d is %q", i, c)
		}
		if before, twice := seen[c]; twice {
			t.Errorf("nodes %d and %d have the colour %s", before, i, c)
		}
		seen[c] = i
	}
	for want, got := range map[string]string{
		"#ff0000": hexOf(0, 1, 0.5), "#00ff00": hexOf(120, 1, 0.5), "#0000ff": hexOf(240, 1, 0.5), "#808080": hexOf(77, 0, 0.5), "#bf4040": hexOf(0, 0.5, 0.5),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
