package rules

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// fileValues files as many subjects under each value as the map says.
func fileValues(values map[string]uint32) (table, map[string]extent, []filedSubject) {
	var ix index
	subjects := make(map[string][]*subjectToFile)
	for value, n := range values {
		for range n {
			subjects[value] = append(subjects[value], &subjectToFile{namedSubject: &namedSubject{name: "name"}})
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
