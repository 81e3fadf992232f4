package rules

import (
	"maps"
	"slices"
	"strings"
)

// prefixTree finds what is filed under prefixes of a value: a radix tree, whose nodes
// stand where prefixes end or part. A look-up starts at the root and calls next until
// there is none. All nodes and all texts stand side by side: the part that is always
// walked stays in the cache.
type prefixTree struct {
	nodes []prefixNode // the root, then children behind their parents, siblings together
	texts string
}

type prefixNode struct {
	filed    extent // under the prefix that ends here
	text     uint32 // where in texts its label stands, and behind it the first bytes of its children's
	children uint32 // where they begin
	label    uint16 // length of the text between the parent and here
	branches uint16 // how many children it has
}

// newPrefixTree makes a tree of what is filed under prefixes.
func newPrefixTree(filed map[string]extent) (t prefixTree) {
	if len(filed) == 0 {
		return t
	}
	var texts strings.Builder
	// Each node has the prefixes, sorted, that begin with the text up to its label's end.
	type pending struct {
		sorted []string
		begin  int // of the label
	}
	t.nodes = make([]prefixNode, 1)
	waiting := []pending{{sorted: slices.Sorted(maps.Keys(filed))}}
	for i := 0; i < len(waiting); i++ {
		w := waiting[i]
		end := 0 // of the root's label: it has none
		if i > 0 {
			end = commonPrefix(w.sorted[0], w.sorted[len(w.sorted)-1])
		}
		n := prefixNode{text: uint32(texts.Len()), children: uint32(len(t.nodes)), label: uint16(end - w.begin)}
		texts.WriteString(w.sorted[0][w.begin:end])
		if len(w.sorted[0]) == end {
			n.filed = filed[w.sorted[0]]
			w.sorted = w.sorted[1:]
		}
		for len(w.sorted) > 0 {
			first := w.sorted[0][end]
			after := slices.IndexFunc(w.sorted, func(p string) bool { return p[end] != first })
			if after < 0 {
				after = len(w.sorted)
			}
			texts.WriteByte(first)
			waiting = append(waiting, pending{w.sorted[:after], end})
			w.sorted = w.sorted[after:]
			n.branches++
		}
		t.nodes[i] = n
		t.nodes = append(t.nodes, make([]prefixNode, n.branches)...)
	}
	t.texts = texts.String()
	return t
}

// root returns the node of the empty prefix, nil if nothing is filed.
func (t *prefixTree) root() *prefixNode {
	if len(t.nodes) == 0 {
		return nil
	}
	return &t.nodes[0]
}

// next returns the child of n that value goes on with and what is left of value
// then, or nil.
func (t *prefixTree) next(n *prefixNode, value string) (*prefixNode, string) {
	if value == "" {
		return nil, ""
	}
	firsts := t.texts[n.text+uint32(n.label):][:n.branches]
	i := strings.IndexByte(firsts, value[0])
	if i < 0 {
		return nil, ""
	}
	child := &t.nodes[int(n.children)+i]
	label := int(child.label) // its first byte is the one of firsts
	if label > 1 && !strings.HasPrefix(value, t.texts[child.text:][:label]) {
		return nil, ""
	}
	return child, value[label:]
}

// commonPrefix returns with how many equal bytes a and b begin.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
