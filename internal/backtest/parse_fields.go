package backtest

import (
	"bytes"
	"strings"
)

// What a log can call the two fields that only suggestions look at.
var (
	statusFields = []string{"status", "status_code", "response_code"}
	agentFields  = []string{"user_agent", "http_user_agent", "agent"}
)

// Indexes of fields that are no values.
const (
	notWanted = -1 - iota
	isStatus
	isAgent
	isTime // and less: by rank in the names of the time
)

// put stores a value at an index. Times are left to the caller.
func (r *record) put(at int, v []byte) {
	switch {
	case at >= 0:
		if len(v) > 0 && string(v) != "-" {
			r.values[at] = textOf(v)
		}
	case at == isStatus:
		r.status = textOf(v)
	case at == isAgent:
		r.agent = textOf(v)
	}
}

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

func timeNames(timeField string) []string {
	if timeField != "" {
		return []string{timeField}
	}
	return timeFields
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

// csvLines reads values between commas. The first line of each log has their names. A value in quotes may have commas, and
// quotes that are doubled, but no newline.
type csvLines struct {
	wanted  fields
	times   []string
	columns [][]int // what each column is
	rank    int
	scratch []byte
}

func newCSV(wanted fields, timeField string) *csvLines {
	return &csvLines{wanted: wanted, times: timeNames(timeField)}
}

func (c *csvLines) begin() { c.columns = nil }

func (c *csvLines) parse(line []byte, r *record) fault {
	c.scratch = c.scratch[:0]
	c.rank = len(timeFields)
	first := c.columns == nil
	if first {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	n := 0
	for more := true; more; n++ {
		var v []byte
		var ok bool
		if v, line, more, ok = c.next(line); !ok {
			return broken
		}
		switch {
		case first:
			c.columns = append(c.columns, c.meaning(string(bytes.TrimSpace(v))))
		case n < len(c.columns):
			c.value(c.columns[n], v, r)
		default:
			return broken
		}
	}
	switch {
	case first:
		return header
	case n < len(c.columns):
		return broken
	case c.rank == len(timeFields):
		return noTime
	}
	return fine
}

// meaning returns what a column of that name is.
func (c *csvLines) meaning(name string) (at []int) {
	for i, w := range c.wanted {
		if w == name {
			at = append(at, i)
		}
	}
	for _, s := range statusFields {
		if s == name {
			at = append(at, isStatus)
		}
	}
	for _, s := range agentFields {
		if s == name {
			at = append(at, isAgent)
		}
	}
	for i, t := range c.times {
		if t == name {
			at = append(at, isTime-i)
		}
	}
	return at
}

func (c *csvLines) value(meanings []int, v []byte, r *record) {
	for _, at := range meanings {
		if at > isTime {
			r.put(at, v)
		} else if rank := isTime - at; rank < c.rank {
			if t, ok := parseInstant(v); ok {
				r.time, c.rank = t, rank
			}
		}
	}
}

// next reads a value, and says whether another follows.
func (c *csvLines) next(b []byte) (v, rest []byte, more, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		if i := bytes.IndexByte(b, ','); i >= 0 {
			return b[:i], b[i+1:], true, true
		}
		return b, nil, false, true
	}
	b = b[1:]
	begin := len(c.scratch)
	for {
		i := bytes.IndexByte(b, '"')
		switch {
		case i < 0:
			return nil, nil, false, false
		case i+1 < len(b) && b[i+1] == '"':
			c.scratch = append(c.scratch, b[:i+1]...)
			b = b[i+2:]
			continue
		}
		v, b = b[:i], b[i+1:]
		if len(c.scratch) > begin {
			c.scratch = append(c.scratch, v...)
			v = c.scratch[begin:len(c.scratch):len(c.scratch)]
		}
		if len(b) == 0 {
			return v, nil, false, true
		}
		return v, b[1:], true, b[0] == ','
	}
}
