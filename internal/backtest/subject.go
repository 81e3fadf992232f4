package backtest

import (
	"strings"

	"github.com/weirlimit/weir/rules"
)

// maxSubject is how many bytes of a key's text are kept.
const maxSubject = 200

// namer writes texts of keys into memory that it keeps.
type namer struct{ text []byte }

// subject is the text of the key that a match counts, such as user=alice.
func (n *namer) subject(m *rules.Match, p *part) string {
	if len(m.Rule.Per) == 0 {
		return "(all)"
	}
	n.text = n.text[:0]
	for i, name := range m.Rule.Per[m.Per] {
		if i > 0 {
			n.text = append(n.text, ' ')
		}
		n.text = append(append(n.text, name...), '=')
		for j := range p.attributes {
			if p.attributes[j].Key == name {
				n.text = append(n.text, p.attributes[j].Value...)
			}
		}
	}
	if len(n.text) > maxSubject {
		n.text = append(n.text[:maxSubject-3], "..."...)
	}
	return strings.ToValidUTF8(string(n.text), "?")
}
