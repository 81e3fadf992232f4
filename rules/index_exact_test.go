package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// fileValues files as many candidates under each value as the map says.
func fileValues(values map[string]uint32) (table, map[string]extent, []candidate) {
	var ix index
	subjects := make(map[string][]*filedSubject)
	for value, n := range values {
		for range n {
			subjects[value] = append(subjects[value], &filedSubject{namedSubject: &namedSubject{name: "name"}})
		}
	}
	filed := ix.fileExact(subjects)
	return newTable(filed), filed, ix.filed
}

// A table finds what a map does.
func TestTableAsMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab/")), 0, 4, -1)
		table, filed, candidates := fileValues(rapid.MapOf(text, rapid.Uint32Range(1, 3)).Draw(t, "values"))
		for range 20 {
			asked := text.Draw(t, "asked")
			if got := table.find(asked, candidates); got != filed[asked] {
				t.Fatalf("%q leads to %v, want %v of %v", asked, got, filed[asked], filed)
			}
		}
		for asked, want := range filed {
			if got := table.find(asked, candidates); got != want {
				t.Fatalf("%q leads to %v, want %v of %v", asked, got, want, filed)
			}
		}
	})
}

// Texts whose hashes are the same are told apart.
func TestTableComparesTexts(t *testing.T) {
	table, filed, candidates := fileValues(map[string]uint32{"a": 1})
	hash, i := table.hash("b")
	clear(table.slots)
	table.slots[i] = slot{hash, filed["a"]}
	if got := table.find("b", candidates); got.len() != 0 {
		t.Errorf("b leads to the %v of a", got)
	}
}

// A look-up ends soon, also if it finds nothing: at most half of the slots are taken.
func TestTableHasRoom(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 1000} {
		values := make(map[string]uint32)
		for i := range n {
			values[fmt.Sprint(i)] = 1
		}
		taken := 0
		table, _, _ := fileValues(values)
		for _, s := range table.slots {
			if s.hash != 0 {
				taken++
			}
		}
		if taken != n || len(table.slots) < 2*n || len(table.slots) > 4*n {
			t.Errorf("%d of %d slots are taken, want %d", taken, len(table.slots), n)
		}
	}
}

// The texts of a candidate are the same whether they fit into it or not.
func TestCandidateTexts(t *testing.T) {
	if size := unsafe.Sizeof(candidate{}); size != 128 {
		t.Errorf("a candidate takes %d bytes, want two cache lines", size)
	}
	room := len(candidate{}.short)
	for _, lengths := range [][3]int{{0, 5, 0}, {1, 5, 2}, {0, room, 0}, {room - 9, 5, 4}, {room - 9, 5, 5}, {maxValue, 2 * maxValue, maxValue}} {
		value, name, only := strings.Repeat("v", lengths[0]), strings.Repeat("n", lengths[1]), strings.Repeat("o", lengths[2])
		c := newCandidate(&filedSubject{namedSubject: &namedSubject{name: name}, only: only}, value)
		if c.value() != value || c.name() != name || c.only() != only {
			t.Errorf("%d: %q, %q, %q", lengths, c.value(), c.name(), c.only())
		}
		if short := lengths[0]+lengths[1]+lengths[2] <= room; (c.long == "") != short {
			t.Errorf("%d: fits: %t, and yet %q", lengths, short, c.long)
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
