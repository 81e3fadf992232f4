package apitest

import (
	"bytes"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// DrawMessage fills every field of a message, so that none is forgotten by hand which the
// .proto files have. Durations are those that fit into nanoseconds.
func DrawMessage[M proto.Message](t *rapid.T, m M) M {
	fill(t, m.ProtoReflect())
	return m
}

func fill(t *rapid.T, m protoreflect.Message) {
	if d, ok := m.Interface().(*durationpb.Duration); ok {
		ns := rapid.Int64().Draw(t, "duration")
		d.Seconds, d.Nanos = ns/int64(time.Second), int32(ns%int64(time.Second))
		return
	}
	for _, field := range fieldsIn(m) {
		if rapid.IntRange(0, 3).Draw(t, "unset") == 0 {
			continue
		}
		name := string(field.Name())
		switch {
		case field.IsMap():
			for key, value := range rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, name) {
				m.Mutable(field).Map().Set(protoreflect.ValueOf(key).MapKey(), protoreflect.ValueOf(value))
			}
		case field.IsList():
			list := m.Mutable(field).List()
			for range rapid.IntRange(0, 3).Draw(t, name) {
				if field.Message() != nil {
					fill(t, list.AppendMutable().Message())
				} else {
					list.Append(drawValue(t, field))
				}
			}
		case field.Message() != nil:
			fill(t, m.Mutable(field).Message())
		default:
			m.Set(field, drawValue(t, field))
		}
	}
}

func fieldsIn(m protoreflect.Message) (all []protoreflect.FieldDescriptor) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		all = append(all, fields.Get(i))
	}
	return all
}

func drawValue(t *rapid.T, field protoreflect.FieldDescriptor) protoreflect.Value {
	name := string(field.Name())
	switch field.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOf(rapid.Bool().Draw(t, name))
	case protoreflect.StringKind:
		return protoreflect.ValueOf(rapid.OneOf(rapid.String(), rapid.StringN(0, 300, -1)).Draw(t, name))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOf(rapid.Int64().Draw(t, name))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOf(rapid.Int32().Draw(t, name))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOf(rapid.Uint64().Draw(t, name))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOf(rapid.Uint32().Draw(t, name))
	case protoreflect.EnumKind:
		return protoreflect.ValueOf(protoreflect.EnumNumber(rapid.Int32().Draw(t, name)))
	}
	panic("no values of kind " + field.Kind().String())
}

// Encodings are what decodes to something: a message, or two in a row, whose fields come
// twice then, or one after fields of another message, which are unknown or have another
// type than expected.
func Encodings[M proto.Message](fresh func() M) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		var b []byte
		if rapid.Bool().Draw(t, "other first") {
			b = Marshal(t, DrawMessage(t, &weirv1.LimitStatus{}))
		}
		for range rapid.IntRange(0, 2).Draw(t, "messages") {
			b = append(b, Marshal(t, DrawMessage(t, fresh()))...)
		}
		if rapid.IntRange(0, 9).Draw(t, "cut off") == 0 {
			b = b[:rapid.IntRange(0, len(b)).Draw(t, "length")]
		}
		return b
	})
}

// Reporter is what testing and rapid have in common.
type Reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Marshal returns the message as the library encodes it, the same in each run.
func Marshal(t Reporter, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}

// Decoder decodes a kind of message by hand.
type Decoder struct {
	// Fresh returns an empty message.
	Fresh func() proto.Message
	// Decode returns what was decoded, put together again.
	Decode func(b []byte) (proto.Message, error)
	// Normalize changes what the library has decoded to what Decode keeps of it. Nil changes nothing.
	Normalize func(proto.Message)
}

// CheckAsLibrary compares Decode with the library: it decodes the same, and refuses the same as invalid.
func (d Decoder) CheckAsLibrary(t Reporter, b []byte) {
	t.Helper()
	want := d.Fresh()
	wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
	before := bytes.Clone(b)
	got, err := d.Decode(b)
	clear(b) // gRPC uses it again
	if (err != nil) != (wantErr != nil) || err != nil && status.Code(err) != codes.InvalidArgument {
		t.Fatalf("%x: %v, but the library says %v", before, err, wantErr)
	}
	if d.Normalize != nil {
		d.Normalize(want)
	}
	if err == nil && !proto.Equal(got, want) {
		t.Fatalf("%x:\ngot  %v\nwant %v", before, got, want)
	}
}
