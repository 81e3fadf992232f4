package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A table finds what a map does.
func TestTableAsMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab/")), 0, 4, -1)
		values := rapid.MapOf(text, rapid.Int()).Draw(t, "values")
		table := newTable(values)
		for range 20 {
			asked := text.Draw(t, "asked")
			if got := table.find(asked); got != values[asked] {
				t.Fatalf("%q leads to %d, want %d of %v", asked, got, values[asked], values)
			}
		}
		for asked, want := range values {
			if got := table.find(asked); got != want {
				t.Fatalf("%q leads to %d, want %d of %v", asked, got, want, values)
			}
		}
	})
}

// Texts whose hashes are the same are told apart.
func TestTableComparesTexts(t *testing.T) {
	table := newTable(map[string]int{"a": 1})
	i, tag := table.hash("b")
	clear(table.slots)
	table.slots[i] = slot[int]{text: "a", value: 1, tag: tag}
	if got := table.find("b"); got != 0 {
		t.Errorf("b leads to the %d of a", got)
	}
}

// A look-up ends soon, also if it finds nothing: at most half of the slots are taken.
func TestTableHasRoom(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 1000} {
		values := make(map[string]int)
		for i := range n {
			values[fmt.Sprint(i)] = i
		}
		taken := 0
		slots := newTable(values).slots
		for _, s := range slots {
			if s.tag != 0 {
				taken++
			}
		}
		if taken != n || len(slots) < 2*n || len(slots) > 4*n {
			t.Errorf("%d of %d slots are taken, want %d", taken, len(slots), n)
		}
	}
}

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
