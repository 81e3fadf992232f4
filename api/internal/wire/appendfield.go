package wire

import (
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"
)

// As everywhere in the .proto files, what is zero is left out, unless it is optional. Numbers are those of the
// fields.

// AppendVarint appends a number, unless it is 0.
func AppendVarint(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(AppendTag(b, number, protowire.VarintType), v)
}

// AppendBool appends a bool, unless it is false.
func AppendBool(b []byte, number protowire.Number, v bool) []byte {
	return AppendVarint(b, number, protowire.EncodeBool(v))
}

// AppendOptionalBool appends a bool, unless there is none.
func AppendOptionalBool(b []byte, number protowire.Number, v *bool) []byte {
	if v == nil {
		return b
	}
	return protowire.AppendVarint(AppendTag(b, number, protowire.VarintType), protowire.EncodeBool(*v))
}

// AppendString appends a text, unless it is empty.
func AppendString(b []byte, number protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return protowire.AppendString(AppendTag(b, number, protowire.BytesType), v)
}

// AppendTag is protowire.AppendTag, faster for numbers up to 15, whose tags are one byte.
func AppendTag(b []byte, number protowire.Number, kind protowire.Type) []byte {
	if number > 15 {
		return protowire.AppendTag(b, number, kind)
	}
	return append(b, byte(number)<<3|byte(kind))
}

// AppendDurationOf appends a Duration, unless there is none.
func AppendDurationOf(b []byte, number protowire.Number, d *durationpb.Duration) []byte {
	if d == nil {
		return b
	}
	return appendDuration(b, number, d.Seconds, int64(d.Nanos))
}

// AppendDuration appends a google.protobuf.Duration of ns nanoseconds.
func AppendDuration(b []byte, number protowire.Number, ns int64) []byte {
	return appendDuration(b, number, ns/int64(time.Second), ns%int64(time.Second))
}

func appendDuration(b []byte, number protowire.Number, seconds, nanos int64) []byte {
	b, begin := BeginMessage(b, number)
	b = AppendVarint(b, 1, uint64(seconds))
	b = AppendVarint(b, 2, uint64(nanos))
	b[begin-1] = byte(len(b) - begin) // two numbers of at most 11 bytes
	return b
}

// BeginMessage begins a field that is a message, which EndMessage ends.
func BeginMessage(b []byte, number protowire.Number) (_ []byte, begin int) {
	b = append(AppendTag(b, number, protowire.BytesType), 0)
	return b, len(b) // most are so short that a byte tells their length
}

// EndMessage ends the message that has begun there.
func EndMessage(b []byte, begin int) []byte {
	length := len(b) - begin
	if more := protowire.SizeVarint(uint64(length)) - 1; more > 0 {
		b = slices.Grow(b, more)[:len(b)+more]
		copy(b[begin+more:], b[begin:begin+length])
	}
	protowire.AppendVarint(b[:begin-1], uint64(length))
	return b
}
