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
	whole Part
	at    int   // of the next field
	Err   error // ends the walk

	Tag    uint64 // the field's number, and how it is encoded
	Varint uint64 // its value if it is encoded AsVarint
	Part   Part   // its value if it is encoded AsBytes
}

// FieldsOf returns the fields of p, before the first of them.
func FieldsOf(p Part) Fields { return Fields{whole: p} }

// Next goes to the next field. It is false at the end, and if Err is set.
func (f *Fields) Next() bool {
	if f.at == len(f.whole.Bytes) || f.Err != nil {
		return false
	}
	if f.nextShort() {
		return true
	}
	rest := f.whole.Bytes[f.at:]
	number, kind, tagSize := protowire.ConsumeTag(rest)
	if tagSize < 0 || !number.IsValid() {
		return f.fail()
	}
	value := rest[tagSize:]
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
	f.at += tagSize + size
	if kind == protowire.BytesType {
		f.Part.Text = f.whole.Text[f.at-len(f.Part.Bytes) : f.at]
	}
	return true
}

// nextShort is Next for most fields: texts and messages whose tag and length are a byte
// each. It is false if the field is another. It stores word by word: a Part that is put together
// and then copied is read before the processor has written it.
func (f *Fields) nextShort() bool {
	b := f.whole.Bytes
	begin := f.at + 2
	if begin > len(b) {
		return false
	}
	tag, length := b[begin-2], b[begin-1]
	end := begin + int(length)
	if tag&7 != byte(AsBytes) || tag < 1<<3 || tag > 0x7f || length > 0x7f || end > len(b) {
		return false
	}
	f.Tag = uint64(tag)
	f.Part.Bytes = b[begin:end]
	f.Part.Text = f.whole.Text[begin:end]
	f.at = end
	return true
}

func (f *Fields) fail() bool {
	f.Err = Invalid("message", "the last %d bytes cannot be decoded", len(f.whole.Bytes)-f.at)
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
