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
	n.text = n.text[:0]
	switch {
	case m.Rule.Descriptor != nil:
		return n.entries(p)
	case len(m.Rule.Per) == 0:
		return "(all)"
	}
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
	return n.cut()
}

// entries is the text of all entries of a descriptor of Envoy, such as path=/login remote_address=192.0.2.1.
func (n *namer) entries(p *part) string {
	for i, a := range p.attributes {
		if i > 0 {
			n.text = append(n.text, ' ')
		}
		n.text = append(n.text, a.Key...)
		if a.Value != "" {
			n.text = append(append(n.text, '='), a.Value...)
		}
	}
	return n.cut()
}

// cut returns the text, or the beginning of a long one.
func (n *namer) cut() string {
	if len(n.text) > maxSubject {
		n.text = append(n.text[:maxSubject-3], "..."...)
	}
	return strings.ToValidUTF8(string(n.text), "?")
}
