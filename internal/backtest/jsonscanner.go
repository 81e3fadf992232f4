package backtest

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// textOf is b as a string without a copy. It is good as long as b is, which is until the next line.
func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// scanner reads one text of JSON from left to right. After an error, bad is true and every method ends loops.
type scanner struct {
	b       []byte
	i       int
	bad     bool
	scratch []byte // of texts that have escapes
}

// maxDepth is how deep objects and lists may stand in each other.
const maxDepth = 32

func (s *scanner) reset(b []byte) { s.b, s.i, s.bad, s.scratch = b, 0, false, s.scratch[:0] }

// peek returns the next byte that is no space, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// open reads the begin of an object or a list.
func (s *scanner) open(c byte) {
	if s.bad || s.peek() != c {
		s.bad = true
		return
	}
	s.i++
}

// more reports whether another element follows, and reads what stands before it: nothing before the first one, which
// is told by n, the number of elements so far.
func (s *scanner) more(end byte, n int) bool {
	if s.bad {
		return false
	}
	c := s.peek()
	switch {
	case c == end:
		s.i++
		return false
	case n == 0:
		return true
	case c == ',':
		s.i++
		return true
	}
	s.bad = true
	return false
}

// key reads a name and its colon.
func (s *scanner) key() []byte {
	k := s.text()
	if s.bad || s.peek() != ':' {
		s.bad = true
		return nil
	}
	s.i++
	return k
}

// text reads a string.
func (s *scanner) text() []byte {
	if s.bad || s.peek() != '"' {
		s.bad = true
		return nil
	}
	s.i++
	rest := s.b[s.i:]
	end := bytes.IndexByte(rest, '"')
	if end < 0 {
		s.bad = true
		return nil
	}
	if bytes.IndexByte(rest[:end], '\\') < 0 {
		s.i += end + 1
		return rest[:end]
	}
	return s.escapedText()
}

func (s *scanner) escapedText() []byte {
	begin := len(s.scratch)
	for s.i < len(s.b) {
		c := s.b[s.i]
		s.i++
		switch c {
		case '"':
			return s.scratch[begin:len(s.scratch):len(s.scratch)]
		case '\\':
			s.escape()
			if s.bad {
				return nil
			}
		default:
			s.scratch = append(s.scratch, c)
		}
	}
	s.bad = true
	return nil
}

// escape reads what follows a backslash.
func (s *scanner) escape() {
	if s.i >= len(s.b) {
		s.bad = true
		return
	}
	c := s.b[s.i]
	s.i++
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r := s.hex4()
		if utf16.IsSurrogate(r) {
			if s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
				s.i += 2
				r = utf16.DecodeRune(r, s.hex4())
			} else {
				r = utf8.RuneError
			}
		}
		s.scratch = utf8.AppendRune(s.scratch, r)
		return
	default:
		s.bad = true
		return
	}
	s.scratch = append(s.scratch, c)
}

func (s *scanner) hex4() (r rune) {
	if s.i+4 > len(s.b) {
		s.bad = true
		return 0
	}
	for range 4 {
		c := s.b[s.i]
		s.i++
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			s.bad = true
			return 0
		}
		r = r<<4 | rune(c)
	}
	return r
}

// plain reads a number, true, false or null.
func (s *scanner) plain() []byte {
	s.peek()
	begin := s.i
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ',', '}', ']', ' ', '\t', '\r', '\n':
			s.bad = s.bad || s.i == begin
			return s.b[begin:s.i]
		default:
			if c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != 'E' {
				s.bad = true
				return nil
			}
			s.i++
		}
	}
	s.bad = s.bad || s.i == begin
	return s.b[begin:s.i]
}

// number reads a whole number.
func (s *scanner) number() int64 {
	v, ok := parseInt(s.plain())
	s.bad = s.bad || !ok
	return v
}

// boolean reads true or false.
func (s *scanner) boolean() bool {
	v := s.plain()
	if !s.bad && string(v) != "true" && string(v) != "false" {
		s.bad = true
	}
	return string(v) == "true"
}

// skip reads any value.
func (s *scanner) skip(depth int) {
	switch c := s.peek(); {
	case s.bad || depth > maxDepth:
		s.bad = true
	case c == '"':
		begin := len(s.scratch)
		s.text()
		s.scratch = s.scratch[:begin]
	case c == '{':
		s.i++
		for n := 0; s.more('}', n); n++ {
			s.key()
			s.skip(depth + 1)
		}
	case c == '[':
		s.i++
		for n := 0; s.more(']', n); n++ {
			s.skip(depth + 1)
		}
	default:
		s.plain()
	}
}

// end reports whether nothing follows, and all was well.
func (s *scanner) end() bool { return !s.bad && s.peek() == 0 && s.i >= len(s.b) }

// parseInt reads a decimal number with an optional minus.
func parseInt(b []byte) (v int64, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 19 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	if v < 0 {
		return 0, false
	}
	if negative {
		v = -v
	}
	return v, true
}
