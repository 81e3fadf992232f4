package backtest

import "bytes"

// combinedFields are those of the combined format, with nginx's names; path is request_uri up to its "?".
var combinedFields = []string{
	"remote_addr", "remote_user", "request_method", "request_uri", "path", "server_protocol", "status", "body_bytes_sent", "http_referer", "http_user_agent",
}

// combined reads the combined format: ADDR - USER [TIME] "METHOD URI PROTOCOL" STATUS BYTES "REFERER" "AGENT".
type combined struct {
	at    [10][]int // indices of each of combinedFields in the values
	clock commonLog
}

func newCombined(wanted fields) *combined {
	c := new(combined)
	for i, name := range combinedFields {
		c.at[i] = wanted.of(name)
	}
	return c
}

func (c *combined) begin() {}

func (c *combined) set(r *record, field int, v []byte) {
	if len(v) == 1 && v[0] == '-' {
		return
	}
	for _, i := range c.at[field] {
		r.values[i] = textOf(v)
	}
}

func (c *combined) parse(line []byte, r *record) fault {
	end := bytes.IndexByte(line, ' ')
	open := bytes.IndexByte(line, '[')
	if end <= 0 || open < end+2 {
		return broken
	}
	c.set(r, 0, line[:end])
	if user := bytes.TrimRight(line[end+1:open], " "); len(user) > 0 {
		if sep := bytes.IndexByte(user, ' '); sep >= 0 {
			c.set(r, 1, user[sep+1:])
		}
	}
	rest := line[open+1:]
	closing := bytes.IndexByte(rest, ']')
	if closing < 0 {
		return broken
	}
	t, ok := c.clock.parse(rest[:closing])
	if !ok {
		return noTime
	}
	r.time = t
	request, rest, ok := quoted(rest[closing+1:])
	if !ok {
		return broken
	}
	c.request(request, r)
	return c.tail(rest, r)
}

// request splits METHOD URI PROTOCOL. What is no such thing, as of a client that speaks another protocol, has none of them.
func (c *combined) request(b []byte, r *record) {
	method, uri, protocol, ok := requestLine(b)
	if !ok {
		return
	}
	c.set(r, 2, method)
	c.set(r, 3, uri)
	c.set(r, 4, pathOf(uri))
	c.set(r, 5, protocol)
}

// tail reads what follows the request.
func (c *combined) tail(rest []byte, r *record) fault {
	status, rest := word(rest)
	size, rest := word(rest)
	if len(status) == 0 {
		return broken
	}
	r.status = textOf(status)
	c.set(r, 6, status)
	c.set(r, 7, size)
	if referer, rest, ok := quoted(rest); ok {
		c.set(r, 8, referer)
		if agent, _, ok := quoted(rest); ok {
			r.agent = textOf(agent)
			c.set(r, 9, agent)
		}
	}
	return fine
}

// requestLine splits METHOD URI PROTOCOL.
func requestLine(b []byte) (method, uri, protocol []byte, ok bool) {
	first := bytes.IndexByte(b, ' ')
	last := bytes.LastIndexByte(b, ' ')
	if first <= 0 || last <= first {
		return nil, nil, nil, false
	}
	return b[:first], b[first+1 : last], b[last+1:], true
}

func pathOf(uri []byte) []byte {
	if i := bytes.IndexByte(uri, '?'); i >= 0 {
		return uri[:i]
	}
	return uri
}

// word reads up to the next space.
func word(b []byte) (w, rest []byte) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	i := bytes.IndexByte(b, ' ')
	if i < 0 {
		return b, nil
	}
	return b[:i], b[i:]
}

// quoted reads a text in quotes, in which a backslash keeps a quote from ending it. The backslash stays.
func quoted(b []byte) (text, rest []byte, ok bool) {
	for len(b) > 0 && b[0] == ' ' {
		b = b[1:]
	}
	if len(b) == 0 || b[0] != '"' {
		return nil, b, false
	}
	b = b[1:]
	from := 0
	for {
		i := bytes.IndexByte(b[from:], '"')
		if i < 0 {
			return nil, b, false
		}
		i += from
		slashes := 0
		for slashes < i && b[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return b[:i], b[i+1:], true
		}
		from = i + 1
	}
}

// envoyFields are those of Envoy's default format.
var envoyFields = []string{
	"start_time", "method", "request_uri", "path", "protocol", "response_code", "response_flags", "bytes_received", "bytes_sent", "duration",
	"upstream_service_time", "x_forwarded_for", "user_agent", "request_id", "authority", "upstream_host",
}

// envoyLog reads Envoy's default format: [TIME] "METHOD PATH PROTOCOL" CODE FLAGS RECEIVED SENT DURATION UPSTREAM "XFF" "AGENT" "ID"
// "AUTHORITY" "UPSTREAM HOST".
type envoyLog struct{ at [16][]int }

func newEnvoy(wanted fields) *envoyLog {
	e := new(envoyLog)
	for i, name := range envoyFields {
		e.at[i] = wanted.of(name)
	}
	return e
}

func (e *envoyLog) begin() {}

func (e *envoyLog) set(r *record, field int, v []byte) {
	if len(v) == 1 && v[0] == '-' {
		return
	}
	for _, i := range e.at[field] {
		r.values[i] = textOf(v)
	}
}

func (e *envoyLog) parse(line []byte, r *record) fault {
	if line[0] != '[' {
		return broken
	}
	closing := bytes.IndexByte(line, ']')
	if closing < 0 {
		return broken
	}
	t, ok := parseInstant(line[1:closing])
	if !ok {
		return noTime
	}
	r.time = t
	e.set(r, 0, line[1:closing])
	request, rest, ok := quoted(line[closing+1:])
	if !ok {
		return broken
	}
	if method, uri, protocol, ok := requestLine(request); ok {
		e.set(r, 1, method)
		e.set(r, 2, uri)
		e.set(r, 3, pathOf(uri))
		e.set(r, 4, protocol)
	}
	for field := 5; field < 11; field++ {
		var w []byte
		if w, rest = word(rest); len(w) == 0 {
			return broken
		}
		if field == 5 {
			r.status = textOf(w)
		}
		e.set(r, field, w)
	}
	for field := 11; field < 16; field++ {
		text, behind, ok := quoted(rest)
		if !ok {
			break
		}
		rest = behind
		switch field {
		case 11: // a proxy appends the address that it sees: the last one is not the client's claim
			if i := bytes.LastIndexByte(text, ','); i >= 0 {
				text = bytes.TrimLeft(text[i+1:], " ")
			}
		case 12:
			r.agent = textOf(text)
		}
		e.set(r, field, text)
	}
	return fine
}
