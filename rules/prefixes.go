package rules

import "strings"

// prefixTree finds the subjects filed under prefixes of a value: a radix tree, whose
// nodes stand where prefixes end or part. A look-up starts at the root and calls
// next until there is none. The zero value is an empty root.
type prefixTree struct {
	label    string       // between the parent and here; empty in the root
	subjects []*subject   // filed under the prefix that ends here
	firsts   string       // first byte of each child's label, all different
	children []prefixTree // in the order of firsts
}

// insert files s under prefix, from t on.
func (t *prefixTree) insert(prefix string, s *subject) {
	n := commonPrefix(t.label, prefix)
	if n < len(t.label) {
		lower := *t
		lower.label = t.label[n:]
		*t = prefixTree{label: t.label[:n], firsts: lower.label[:1], children: []prefixTree{lower}}
	}
	prefix = prefix[n:]
	if prefix == "" {
		t.subjects = append(t.subjects, s)
		return
	}
	i := strings.IndexByte(t.firsts, prefix[0])
	if i < 0 {
		i = len(t.children)
		t.firsts += prefix[:1]
		t.children = append(t.children, prefixTree{label: prefix})
	}
	t.children[i].insert(prefix, s)
}

// next returns the child that value goes on with and what is left of value then,
// or nil.
func (t *prefixTree) next(value string) (*prefixTree, string) {
	if value == "" {
		return nil, ""
	}
	i := strings.IndexByte(t.firsts, value[0])
	if i < 0 {
		return nil, ""
	}
	child := &t.children[i]
	rest, ok := strings.CutPrefix(value, child.label)
	if !ok {
		return nil, ""
	}
	return child, rest
}

// commonPrefix returns with how many equal bytes a and b begin.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
