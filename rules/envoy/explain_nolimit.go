package envoy

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/rules/internal/counter"
	"github.com/weirlimit/weir/rules/internal/problem"
)

// Explain says why no limit stands where the entries lead, as a sentence without its full
// stop, or nothing if one does.
func (t *Tree) Explain(entries []counter.Attribute) string {
	if len(entries) > maxDepth {
		return fmt.Sprintf("the request has %d entries, more than the %d that descriptors may have", len(entries), maxDepth)
	}
	at, way := &t.root, "the file"
	for i := range entries {
		next := at.next(&entries[i]).to
		if next == nil {
			return fmt.Sprintf("%s has no descriptor for %s%s", way, problem.Quote(entries[i].Key+"="+entries[i].Value), at.known())
		}
		at, way = next, problem.Quote(next.composite())
	}
	if at.limit == nil {
		return fmt.Sprintf("%s has no rate_limit%s", way, at.known())
	}
	return ""
}

// known ends a sentence with what stands below n.
func (n *node) known() string {
	const most = 5
	var names []string
	for _, child := range n.order[:min(len(n.order), most)] {
		names = append(names, problem.Quote(child.composite()))
	}
	switch more := len(n.order) - most; {
	case len(names) == 0:
		return ", nor descriptors below"
	case more > 0:
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return "; below stand " + strings.Join(names, ", ")
}
