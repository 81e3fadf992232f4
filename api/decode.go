package api

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// This file reads the messages that ask for checks, envoy.go those of Envoy. Cases are
// the fields' numbers in the .proto files, and how they are encoded; what has another
// number or encoding is skipped.

const (
	asVarint = uint64(protowire.VarintType)
	asBytes  = uint64(protowire.BytesType)
)

// part is an encoded message, or a part of one. The bytes are gRPC's, which uses them
// again; the text is a copy.
type part struct {
	bytes []byte
	text  string
}

func newPart(message []byte) part { return part{message, string(message)} }

// fields walks over the fields of an encoded message.
type fields struct {
	rest part
	err  error

	tag    uint64 // the field's number, and how it is encoded
	varint uint64 // its value if it is encoded asVarint
	part   part   // its value if it is encoded asBytes
}

func fieldsOf(p part) fields { return fields{rest: p} }

// next goes to the next field. It is false at the end, and if err is set.
func (f *fields) next() bool {
	if len(f.rest.bytes) == 0 || f.err != nil {
		return false
	}
	if f.nextShort() {
		return true
	}
	number, kind, tagSize := protowire.ConsumeTag(f.rest.bytes)
	if tagSize < 0 || !number.IsValid() {
		return f.fail()
	}
	value := f.rest.bytes[tagSize:]
	var size int
	switch kind {
	case protowire.VarintType:
		f.varint, size = protowire.ConsumeVarint(value)
	case protowire.BytesType:
		f.part.bytes, size = protowire.ConsumeBytes(value)
	default:
		size = protowire.ConsumeFieldValue(number, kind, value)
	}
	if size < 0 {
		return f.fail()
	}
	f.tag = protowire.EncodeTag(number, kind)
	end := tagSize + size
	if kind == protowire.BytesType {
		f.part.text = f.rest.text[end-len(f.part.bytes) : end]
	}
	f.rest = part{f.rest.bytes[end:], f.rest.text[end:]}
	return true
}

// nextShort is next for most fields: texts and messages whose tag and length are a byte
// each. It is false if the field is another.
func (f *fields) nextShort() bool {
	b := f.rest.bytes
	if len(b) < 2 || b[0]&7 != byte(asBytes) || b[0] < 1<<3 || b[0] > 0x7f || b[1] > 0x7f {
		return false
	}
	end := 2 + int(b[1])
	if end > len(b) {
		return false
	}
	f.tag = uint64(b[0])
	f.part = part{b[2:end], f.rest.text[2:end]}
	f.rest = part{b[end:], f.rest.text[end:]}
	return true
}

func (f *fields) fail() bool {
	f.err = invalid("message", "the last %d bytes cannot be decoded", len(f.rest.bytes))
	return false
}

// string returns the value of the field of that name, a text.
func (f *fields) string(name string) string {
	if !utf8.Valid(f.part.bytes) {
		f.err = invalid(name, "%.*q is not UTF-8", maxValue, f.part.text)
	}
	return f.part.text
}

// list is a repeated field whose elements are decoded later.
type list struct {
	parts []part // the first ones
	n     int    // how many there are
}

// add appends an element, if there are not more than enough already.
func (l *list) add(p part, most int) {
	if l.n++; l.n <= most {
		l.parts = append(l.parts, p)
	}
}

func (l *list) reset() { *l = list{parts: l.parts[:0]} }

// decodeRequest decodes a RateLimitRequest into one that may have been used before.
func decodeRequest(p part, into *weirv1.RateLimitRequest) error {
	attributes := into.Attributes
	if len(attributes) > extraAttributes {
		attributes = nil // a map that was large once is slow to clear
	}
	clear(attributes)
	*into = weirv1.RateLimitRequest{Attributes: attributes}
	f := fieldsOf(p)
	for f.next() {
		switch f.tag {
		case 1<<3 | asBytes:
			into.Identifier = f.string("identifier")
		case 2<<3 | asBytes:
			into.IdentifierType = f.string("identifier_type")
		case 3<<3 | asBytes:
			into.Endpoint = f.string("endpoint")
		case 4<<3 | asVarint:
			into.TokensRequested = int64(f.varint)
		case 5<<3 | asVarint:
			into.Timestamp = int64(f.varint)
		case 6<<3 | asBytes:
			into.Domain = f.string("domain")
		case 7<<3 | asBytes:
			f.err = decodeAttribute(f.part, into)
		case 8<<3 | asVarint:
			into.Peek = f.varint != 0
		case 9<<3 | asVarint:
			into.Lease = int64(f.varint)
		case 10<<3 | asVarint:
			into.DebitedAt = int64(f.varint)
		}
	}
	return f.err
}

func decodeAttribute(p part, into *weirv1.RateLimitRequest) error {
	key, value, err := decodePair(p)
	if err != nil {
		return under("attributes", err)
	}
	if into.Attributes == nil {
		into.Attributes = make(map[string]string)
	}
	into.Attributes[key] = value
	return nil
}

// decodePair decodes a key and a value: an entry of a map, or of an Envoy descriptor.
func decodePair(p part) (key, value string, err error) {
	f := fieldsOf(p)
	for f.next() {
		switch f.tag {
		case 1<<3 | asBytes:
			key = f.string("key")
		case 2<<3 | asBytes:
			value = f.string("value")
		}
	}
	return key, value, f.err
}

// decodeBatch adds the requests of a RateLimitBatchRequest to l.
func decodeBatch(p part, l *list) error {
	f := fieldsOf(p)
	for f.next() {
		if f.tag == 1<<3|asBytes {
			l.add(f.part, maxBatch)
		}
	}
	return f.err
}

// decodeStream adds the requests of a StreamRateLimitsRequest to l, and decodes the rest
// of it into head, as far as it can be.
func decodeStream(p part, l *list, head *weirv1.StreamRateLimitsRequest) error {
	f := fieldsOf(p)
	for f.next() {
		switch f.tag {
		case 1<<3 | asVarint:
			head.Id = f.varint
		case 2<<3 | asBytes:
			l.add(f.part, maxBatch)
		case 3<<3 | asBytes:
			if head.Timeout == nil {
				head.Timeout = new(durationpb.Duration)
			}
			f.err = decodeDuration(f.part, head.Timeout)
		}
	}
	return f.err
}

func decodeDuration(p part, into *durationpb.Duration) error {
	f := fieldsOf(p)
	for f.next() {
		switch f.tag {
		case 1<<3 | asVarint:
			into.Seconds = int64(f.varint)
		case 2<<3 | asVarint:
			into.Nanos = int32(f.varint)
		}
	}
	return f.err
}
