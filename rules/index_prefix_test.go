package rules

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A tree finds what asking every prefix finds, the shortest first.
func TestPrefixTreeAsLinear(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab/")), 0, 6, -1)
		filed := make(map[string]extent)
		for i, prefix := range rapid.SliceOfNDistinct(text, 0, 40, rapid.ID[string]).Draw(t, "prefixes") {
			filed[prefix] = extent{uint32(i), uint32(i) + 1}
		}
		tree := newPrefixTree(filed)
		if n := len(tree.nodes); n > 2*len(filed)+1 {
			t.Fatalf("%d nodes for %v", n, filed)
		}
		for range 20 {
			value := text.Draw(t, "value")
			var got, want []extent
			for n, rest := tree.root(), value; n != nil; n, rest = tree.next(n, rest) {
				if n.filed.len() > 0 {
					got = append(got, n.filed)
				}
			}
			for end := range len(value) + 1 {
				if e, ok := filed[value[:end]]; ok {
					want = append(want, e)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%q leads to %v, want %v of %v", value, got, want, filed)
			}
		}
	})
}

// What is long does not take a node per byte.
func TestPrefixTreeLong(t *testing.T) {
	long := strings.Repeat("x", maxValue)
	tree := newPrefixTree(map[string]extent{long: {1, 2}, long[:255] + "y": {2, 3}})
	n, rest := tree.root(), long+"z"
	for range 2 {
		n, rest = tree.next(n, rest)
	}
	if n.filed != (extent{1, 2}) || rest != "z" || len(tree.nodes) != 4 {
		t.Errorf("%v, %q left, %d nodes", n, rest, len(tree.nodes))
	}
}
