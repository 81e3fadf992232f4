package backtest

import "bytes"

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
