package backtest

import "strings"

// jsonLines reads one object per line. A field of an object in it is named with a dot, such as request.path.
type jsonLines struct {
	s    scanner
	root jsonNode
	rank int // of the time found, the lowest wins
}

// jsonNode is a name that is wanted, or leads to one.
type jsonNode struct {
	name     string
	at       []int // the same field can be several
	children []jsonNode
}

func newJSONLines(wanted fields, timeField string) *jsonLines {
	j := new(jsonLines)
	for i, name := range wanted {
		j.root.add(name, i)
	}
	for _, name := range statusFields {
		j.root.add(name, isStatus)
	}
	for _, name := range agentFields {
		j.root.add(name, isAgent)
	}
	for i, name := range timeNames(timeField) {
		j.root.add(name, isTime-i)
	}
	return j
}

// add adds a field under its whole name, and under its path if it has dots.
func (n *jsonNode) add(name string, at int) {
	n.child(name).at = append(n.child(name).at, at)
	if first, rest, found := strings.Cut(name, "."); found && first != "" && rest != "" {
		n.child(first).add(rest, at)
	}
}

func (n *jsonNode) child(name string) *jsonNode {
	if c := n.find([]byte(name)); c != nil {
		return c
	}
	n.children = append(n.children, jsonNode{name: name})
	return &n.children[len(n.children)-1]
}

func (n *jsonNode) find(name []byte) *jsonNode {
	for i := range n.children {
		if n.children[i].name == string(name) {
			return &n.children[i]
		}
	}
	return nil
}

func (j *jsonLines) begin() {}

func (j *jsonLines) parse(line []byte, r *record) fault {
	j.s.reset(line)
	j.rank = len(timeFields)
	j.object(&j.root, r, 0)
	switch {
	case !j.s.end():
		return broken
	case j.rank == len(timeFields):
		return noTime
	}
	return fine
}

func (j *jsonLines) object(n *jsonNode, r *record, depth int) {
	s := &j.s
	s.open('{')
	for i := 0; s.more('}', i); i++ {
		child := n.find(s.key())
		switch c := s.peek(); {
		case s.bad:
		case child == nil || c == '[' || depth > maxDepth:
			s.skip(depth)
		case c == '{':
			j.object(child, r, depth+1)
		case c == '"':
			j.value(child, s.text(), r)
		default:
			if v := s.plain(); string(v) != "null" {
				j.value(child, v, r)
			}
		}
	}
}

func (j *jsonLines) value(n *jsonNode, v []byte, r *record) {
	if j.s.bad {
		return
	}
	for _, at := range n.at {
		if at > isTime {
			r.put(at, v)
		} else if rank := isTime - at; rank < j.rank {
			if t, ok := parseInstant(v); ok {
				r.time, j.rank = t, rank
			}
		}
	}
}
