package topkeys

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// maxText is how many bytes are kept of a key's attributes and values, with what separates them.
const maxText = 128

// Attribute is an attribute of a key.
type Attribute struct {
	Key, Value string
	Cut        bool // the value was longer
}

// encode returns attributes as a text: each text with its length before it, and a byte after each value that is 1 if it
// was cut. Attributes that have no room are left out.
func (r *Recorder) encode(attributes []Attribute) string {
	b := make([]byte, 0, maxText)
	for _, a := range attributes {
		value := a.Value
		if r.value != nil {
			value = r.value(a.Key, value)
		}
		room := maxText - len(b) - len(a.Key) - 5 // lengths below 1<<14, and the mark
		if room < 0 {
			break
		}
		cut := byte(0)
		value = strings.ToValidUTF8(value, "\uFFFD")
		if len(value) > room {
			cut = 1
			for room > 0 && !utf8.RuneStart(value[room]) {
				room--
			}
			value = value[:room]
		}
		b = append(binary.AppendUvarint(b, uint64(len(a.Key))), a.Key...)
		b = append(binary.AppendUvarint(b, uint64(len(value))), value...)
		b = append(b, cut)
	}
	return string(b)
}

// Attributes returns the attributes of Key.Text, as far as it can be read.
func Attributes(text string) (attributes []Attribute) {
	next := func() (string, bool) {
		n, size := binary.Uvarint([]byte(text[:min(len(text), binary.MaxVarintLen64)]))
		if size <= 0 || n > uint64(len(text)-size) {
			return "", false
		}
		var field string
		field, text = text[size:size+int(n)], text[size+int(n):]
		return field, true
	}
	for text != "" {
		key, ok := next()
		if !ok {
			return attributes
		}
		value, ok := next()
		if !ok || text == "" {
			return attributes
		}
		attributes = append(attributes, Attribute{strings.ToValidUTF8(key, "\uFFFD"), strings.ToValidUTF8(value, "\uFFFD"), text[0] == 1})
		text = text[1:]
	}
	return attributes
}
