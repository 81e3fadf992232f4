package rules

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weirlimit/weir/rules/internal/problem"
)

// A stored value is a line that says what it is and in which format, and the rules
// behind it as compressed JSON.
const (
	storedMark   = "weir rules "
	storedFormat = "1"
)

// content is what format 1 holds. What it does not know is refused, not dropped:
// the next change would lose it.
type content struct {
	Revision  int64      `json:"revision"`
	Documents []Document `json:"documents"`
	// Changed are the revisions of the rules by domain and id.
	Changed map[string]map[string]int64 `json:"changed"`
}

// marshal returns the value to store for s, of at most so many bytes.
func (s *State) marshal(most int) ([]byte, error) {
	c := content{Revision: s.Revision, Documents: s.Set.Documents(), Changed: make(map[string]map[string]int64)}
	for name, revision := range s.changed {
		if c.Changed[name.domain] == nil {
			c.Changed[name.domain] = make(map[string]int64)
		}
		c.Changed[name.domain][name.id] = revision
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode rules: %w", err)
	}
	if len(data) > maxStored {
		return nil, fmt.Errorf("%w: they have %d bytes, more than %d", ErrTooLarge, len(data), maxStored)
	}
	var b bytes.Buffer
	b.WriteString(storedMark + storedFormat + "\n")
	z := gzip.NewWriter(&b)
	if _, err := z.Write(data); err != nil {
		return nil, fmt.Errorf("compress rules: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress rules: %w", err)
	}
	if b.Len() > most {
		return nil, fmt.Errorf("%w: compressed they have %d bytes, more than %d", ErrTooLarge, b.Len(), most)
	}
	return b.Bytes(), nil
}

// unmarshal reads a stored value. name stands for it in messages.
func unmarshal(name string, value []byte, how Options) (*State, error) {
	c, err := readContent(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	set, err := how.compileStored(name, c.Documents)
	if err != nil {
		return nil, err
	}
	s := &State{Set: set, Revision: c.Revision, changed: make(map[ruleName]int64, set.Len()), stored: value}
	for r := range set.Rules() {
		s.changed[ruleName{r.Domain, r.ID}] = c.Changed[r.Domain][r.ID]
	}
	return s, nil
}

func readContent(value []byte) (c content, err error) {
	head, body, found := bytes.Cut(value, []byte("\n"))
	format, marked := strings.CutPrefix(string(head), storedMark)
	switch {
	case !found || !marked:
		return c, errors.New("these are no rules of weir")
	case format != storedFormat:
		return c, fmt.Errorf("the rules have the format %s, and this node reads format %s: another version of weir has written them, install that one on this node", problem.Quote(format), storedFormat)
	}
	data, err := decompressUpTo(body, maxStored)
	if err != nil {
		return c, fmt.Errorf("the rules are damaged: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("the rules are damaged, or another version of weir has written them: %w", err)
	}
	if c.Revision < 1 {
		return c, fmt.Errorf("the rules are damaged: revision %d is below 1", c.Revision)
	}
	return c, nil
}

// decompressUpTo returns what gzip has made data of, if that has no more bytes than the bound.
func decompressUpTo(data []byte, most int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(z, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(plain)) > most {
		return nil, fmt.Errorf("more than %d bytes when decompressed", most)
	}
	return plain, nil
}

// Decompress returns the text of a rules file that gzip has made data of. It
// refuses what is larger than a file may be, without reading it all.
func Decompress(data []byte) ([]byte, error) { return decompressUpTo(data, maxFileSize) }
