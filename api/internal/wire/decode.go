package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// maxQuoted is how many bytes of a text that is not UTF-8 an error quotes.
const maxQuoted = 256

// How a field is encoded: the low bits of its tag.
const (
	AsVarint = uint64(protowire.VarintType)
	AsBytes  = uint64(protowire.BytesType)
)

// Part is an encoded message, or a part of one. The bytes are gRPC's, which uses them
// again; the text is a copy.
type Part struct {
	Bytes []byte
	Text  string
}

// NewPart returns the whole of a message.
func NewPart(message []byte) Part { return Part{message, string(message)} }

// Fields walks over the fields of an encoded message.
type Fields struct {
	rest Part
	Err  error // ends the walk

	Tag    uint64 // the field's number, and how it is encoded
	Varint uint64 // its value if it is encoded AsVarint
	Part   Part   // its value if it is encoded AsBytes
}

// FieldsOf returns the fields of p, before the first of them.
func FieldsOf(p Part) Fields { return Fields{rest: p} }

// Next goes to the next field. It is false at the end, and if Err is set.
func (f *Fields) Next() bool {
	if len(f.rest.Bytes) == 0 || f.Err != nil {
		return false
	}
	if f.nextShort() {
		return true
	}
	number, kind, tagSize := protowire.ConsumeTag(f.rest.Bytes)
	if tagSize < 0 || !number.IsValid() {
		return f.fail()
	}
	value := f.rest.Bytes[tagSize:]
	var size int
	switch kind {
	case protowire.VarintType:
		f.Varint, size = protowire.ConsumeVarint(value)
	case protowire.BytesType:
		f.Part.Bytes, size = protowire.ConsumeBytes(value)
	default:
		size = protowire.ConsumeFieldValue(number, kind, value)
	}
	if size < 0 {
		return f.fail()
	}
	f.Tag = protowire.EncodeTag(number, kind)
	end := tagSize + size
	if kind == protowire.BytesType {
		f.Part.Text = f.rest.Text[end-len(f.Part.Bytes) : end]
	}
	f.rest = Part{f.rest.Bytes[end:], f.rest.Text[end:]}
	return true
}

// nextShort is Next for most fields: texts and messages whose tag and length are a byte
// each. It is false if the field is another.
func (f *Fields) nextShort() bool {
	b := f.rest.Bytes
	if len(b) < 2 || b[0]&7 != byte(AsBytes) || b[0] < 1<<3 || b[0] > 0x7f || b[1] > 0x7f {
		return false
	}
	end := 2 + int(b[1])
	if end > len(b) {
		return false
	}
	f.Tag = uint64(b[0])
	f.Part = Part{b[2:end], f.rest.Text[2:end]}
	f.rest = Part{b[end:], f.rest.Text[end:]}
	return true
}

func (f *Fields) fail() bool {
	f.Err = Invalid("message", "the last %d bytes cannot be decoded", len(f.rest.Bytes))
	return false
}

// Text returns the value of the field of that name, a text.
func (f *Fields) Text(name string) string {
	if !utf8.Valid(f.Part.Bytes) {
		f.Err = Invalid(name, "%.*q is not UTF-8", maxQuoted, f.Part.Text)
	}
	return f.Part.Text
}

// List is a repeated field whose elements are decoded later.
type List struct {
	Parts []Part // the first ones
	N     int    // how many there are
}

// Add appends an element, if there are not more than enough already.
func (l *List) Add(p Part, most int) {
	if l.N++; l.N <= most {
		l.Parts = append(l.Parts, p)
	}
}

// Reset empties the list and keeps its memory.
func (l *List) Reset() { *l = List{Parts: l.Parts[:0]} }
