package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// drawMessage fills every field of a message, so that none is forgotten by hand which the
// .proto files have. Durations are those that fit into nanoseconds.
func drawMessage[M proto.Message](t *rapid.T, m M) M {
	fill(t, m.ProtoReflect())
	return m
}

func fill(t *rapid.T, m protoreflect.Message) {
	if d, ok := m.Interface().(*durationpb.Duration); ok {
		setDuration(d, rapid.Int64().Draw(t, "duration"))
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

// encodings are what decodes to something: a message, or two in a row, whose fields come
// twice then, or one after fields of another message, which are unknown or have another
// type than expected.
func encodings[M proto.Message](fresh func() M) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		var b []byte
		if rapid.Bool().Draw(t, "other first") {
			b = marshal(t, drawMessage(t, &weirv1.LimitStatus{}))
		}
		for range rapid.IntRange(0, 2).Draw(t, "messages") {
			b = append(b, marshal(t, drawMessage(t, fresh()))...)
		}
		if rapid.IntRange(0, 9).Draw(t, "cut off") == 0 {
			b = b[:rapid.IntRange(0, len(b)).Draw(t, "length")]
		}
		return b
	})
}

// reporter is what testing and rapid have in common.
type reporter interface {
	Helper()
	Fatalf(format string, args ...any)
}

func marshal(t reporter, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}

// decoders are the messages that are decoded by hand, put together again.
var decoders = map[string]struct {
	fresh  func() proto.Message
	decode func(b []byte) (proto.Message, error)
}{
	"RateLimitRequest": {
		func() proto.Message { return &weirv1.RateLimitRequest{} },
		func(b []byte) (proto.Message, error) {
			m := &weirv1.RateLimitRequest{Identifier: "of", Peek: true, Attributes: map[string]string{"the": "last"}}
			return m, decodeRequest(newPart(b), m)
		},
	},
	"RateLimitBatchRequest": {
		func() proto.Message { return &weirv1.RateLimitBatchRequest{} },
		func(b []byte) (proto.Message, error) {
			var l list
			err := decodeBatch(newPart(b), &l)
			requests, err := decodeList(l, err)
			return &weirv1.RateLimitBatchRequest{Requests: requests}, err
		},
	},
	"StreamRateLimitsRequest": {
		func() proto.Message { return &weirv1.StreamRateLimitsRequest{} },
		func(b []byte) (proto.Message, error) {
			var l list
			m := &weirv1.StreamRateLimitsRequest{}
			err := decodeStream(newPart(b), &l, m)
			m.Requests, err = decodeList(l, err)
			return m, err
		},
	},
	"envoy.RateLimitRequest": {
		func() proto.Message { return &rlsv3.RateLimitRequest{} },
		func(b []byte) (proto.Message, error) { return decodeWholeEnvoy(newPart(b)) },
	},
}

func decodeList(l list, err error) (requests []*weirv1.RateLimitRequest, _ error) {
	for i := 0; i < len(l.parts) && err == nil; i++ {
		m := &weirv1.RateLimitRequest{}
		err = decodeRequest(l.parts[i], m)
		requests = append(requests, m)
	}
	return requests, err
}

func decodeWholeEnvoy(p part) (*rlsv3.RateLimitRequest, error) {
	var descriptors, entries list
	m := &rlsv3.RateLimitRequest{}
	var err error
	m.Domain, m.HitsAddend, err = decodeEnvoy(p, &descriptors)
	for i := 0; i < len(descriptors.parts) && err == nil; i++ {
		var d descriptor
		d, err = decodeDescriptor(descriptors.parts[i], &entries)
		whole := &commonv3.RateLimitDescriptor{IsNegativeHits: d.negative}
		if d.hasHits {
			whole.HitsAddend = wrapperspb.UInt64(d.hits)
		}
		if d.hasLimit {
			whole.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: d.requests, Unit: typev3.RateLimitUnit(d.unit)}
			if d.hasMultiple {
				whole.Limit.UnitMultiplier = wrapperspb.UInt32(uint32(d.multiple))
			}
		}
		for j := 0; j < len(entries.parts) && err == nil; j++ {
			e := &commonv3.RateLimitDescriptor_Entry{}
			e.Key, e.Value, err = decodeEntry(entries.parts[j])
			if err == nil && !utf8.ValidString(e.GetValue()) { // which rules refuse, and descriptors do not
				err = invalid("value", "%q is not UTF-8", e.GetValue())
			}
			whole.Entries = append(whole.Entries, e)
		}
		m.Descriptors = append(m.Descriptors, whole)
	}
	return m, err
}

// normalize makes one of all units that are none.
func normalize(m proto.Message) proto.Message {
	if envoy, ok := m.(*rlsv3.RateLimitRequest); ok {
		for _, d := range envoy.GetDescriptors() {
			if d.GetLimit() != nil {
				d.Limit.Unit = typev3.RateLimitUnit(min(uint32(d.GetLimit().GetUnit()), 1<<8-1))
			}
		}
	}
	return m
}

// What is decoded by hand is what the library decodes, and what it refuses is refused.
func TestDecodeAsLibrary(t *testing.T) {
	for name, d := range decoders {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { sameAsLibrary(t, d.fresh(), d.decode, encodings(d.fresh).Draw(t, "bytes")) })
		})
	}
}

func sameAsLibrary(t reporter, want proto.Message, decode func([]byte) (proto.Message, error), b []byte) {
	t.Helper()
	wantErr := proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, want)
	before := bytes.Clone(b)
	got, err := decode(b)
	clear(b) // gRPC uses it again
	if (err != nil) != (wantErr != nil) || err != nil && status.Code(err) != codes.InvalidArgument {
		t.Fatalf("%x: %v, but the library says %v", before, err, wantErr)
	}
	if err == nil && !proto.Equal(got, normalize(want)) {
		t.Fatalf("%x:\ngot  %v\nwant %v", before, got, want)
	}
}

// FuzzDecode is TestDecodeAsLibrary with bytes that are no message.
func FuzzDecode(f *testing.F) {
	for _, b := range []string{
		"", "\x0a", "\x0a\x01a\x12\x04user", "\x0a\x01\xff", "\x08\x01\x0d1234\x0912345678", "\x0b\x0c", "\x0b\x0b\x0c", "\x0c", "\x0f", "\x02\x00",
		"\x3a\x06\x0a\x01a\x12\x01b\x3a\x06\x0a\x01a\x12\x01c", "\x1a\x02\x08\x01\x1a\x02\x10\x01", "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "\x80\x80\x80\x80\x10\x01", "\xf8\xff\xff\xff\x3f\x01", "\x88\x00\x01",
	} {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, name := range []string{"RateLimitRequest", "RateLimitBatchRequest", "StreamRateLimitsRequest"} {
			d := decoders[name]
			sameAsLibrary(t, d.fresh(), d.decode, bytes.Clone(b))
		}
	})
}

// What is encoded by hand is what the library encodes.
func TestEncodeAsLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawMessage(t, &weirv1.RateLimitResponse{})
		if got, want := appendResponse(nil, r), marshal(t, r); !bytes.Equal(got, want) {
			t.Fatalf("got  %x\nwant %x\nof %v", got, want, r)
		}
		e := drawMessage(t, &weirv1.CheckError{})
		got := appendError([]byte("before"), 3, status.New(codes.Code(e.GetCode()), e.GetMessage()))
		if want := append([]byte("before"), marshal(t, &weirv1.StreamRateLimitsResponse{Error: e})...); !bytes.Equal(got, want) {
			t.Fatalf("got  %x\nwant %x\nof %v", got, want, e)
		}
	})
}

// sendBytes makes a call of bytes.
func (f *fixture) sendBytes(t *testing.T, method string, b []byte) error {
	t.Helper()
	var answer encoded
	return f.dial(t).Invoke(t.Context(), method, copyEncoded(b), &answer, grpc.ForceCodecV2(Codec()))
}

// What cannot be decoded is the caller's fault, and the error says where it is.
func TestUndecodable(t *testing.T) {
	const (
		check = "/weir.v1.RateLimiter/CheckRateLimit"
		batch = "/weir.v1.RateLimiter/CheckRateLimitBatch"
		envoy = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	)
	f := newFixture(t, checkRules)
	for _, tc := range []struct{ method, message, want string }{
		{check, "\x0a\x05a", "message: the last 3 bytes cannot be decoded"},
		{check, "\x0a\x02a\xff", `identifier: "a\xff" is not UTF-8`},
		{check, "\x12\x01\xff", `identifier_type: "\xff" is not UTF-8`},
		{check, "\x1a\x01\xff", `endpoint: "\xff" is not UTF-8`},
		{check, "\x32\x01\xff", `domain: "\xff" is not UTF-8`},
		{check, "\x3a\x03\x0a\x01\xff", `attributes.key: "\xff" is not UTF-8`},
		{check, "\x3a\x06\x0a\x01a\x12\x01\xff", `attributes.value: "\xff" is not UTF-8`},
		{check, "\x1a\xc8\x01" + strings.Repeat("\xff", 200), `endpoint: "` + strings.Repeat(`\xff`, 200) + `" is not UTF-8`},
		{check, "\x1a\xac\x02" + strings.Repeat("\xff", 300), `endpoint: "` + strings.Repeat(`\xff`, 256) + `" is not UTF-8`},
		{batch, "\x08\x01\xff", "message: the last 1 bytes cannot be decoded"},
		{batch, "\x0a\x09\x0a\x01a\x12\x04user\x0a\x03\x0a\x01\xff", `requests[1].identifier: "\xff" is not UTF-8`},
		{batch, "\x0a\x01\x0f", "requests[0].message: the last 1 bytes cannot be decoded"},
		{check, "\xf8\xff\xff\xff\x3f\x01", "message: the last 6 bytes cannot be decoded"},
		{envoy, "\x0a\x01\xff", `domain: "\xff" is not UTF-8`},
		{envoy, "\x02\x00", "message: the last 2 bytes cannot be decoded"},
		{envoy, "\x0a\x01d\x12\x00\x12\x01\x0f", "descriptors[1].message: the last 1 bytes cannot be decoded"},
		{envoy, "\x0a\x01d\x12\x05\x0a\x03\x0a\x01\xff", `descriptors[0].entries[0].key: "\xff" is not UTF-8`},
		{envoy, "\x0a\x07default\x12\x08\x0a\x06\x0a\x01a\x12\x01\xff", `descriptors[0].entries[0].value: "\xff" is not UTF-8`},
	} {
		refused(t, f.sendBytes(t, tc.method, []byte(tc.message)), tc.want)
	}
	if f.shard.Len() != 0 {
		t.Error("a refused request was counted")
	}
}

// A message of a stream that cannot be decoded is refused alone, by its id if that could
// be read.
func TestStreamUndecodable(t *testing.T) {
	f := newFixture(t, checkRules)
	s, err := f.dial(t).NewStream(t.Context(), &weirv1.RateLimiter_ServiceDesc.Streams[0], "/weir.v1.RateLimiter/StreamRateLimits", grpc.ForceCodecV2(Codec()))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ message, want string }{
		{"\x08\x07\x12\x09\x0a\x01", "7: message: the last 4 bytes cannot be decoded"},
		{"\x08\x08\x12\x03\x0a\x01\xff", `8: requests[0].identifier: "\xff" is not UTF-8`},
		{"\x08\x09\x12\x09\x0a\x01a\x12\x04user", "9: "},
	} {
		if err := s.SendMsg(copyEncoded([]byte(tc.message))); err != nil {
			t.Fatal(err)
		}
		m := &weirv1.StreamRateLimitsResponse{}
		if err := s.RecvMsg(m); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d: %s", m.GetId(), m.GetError().GetMessage()); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

// Interceptors see the calls whose messages stay encoded, by their names.
func TestInterceptor(t *testing.T) {
	f := newFixture(t, checkRules)
	var seen []string
	refuse := errors.New("refused")
	f.intercept = func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		seen = append(seen, info.FullMethod)
		if len(seen) == 2 {
			return nil, refuse
		}
		return handler(ctx, req)
	}
	client := weirv1.NewRateLimiterClient(f.dial(t))
	if r, err := client.CheckRateLimit(t.Context(), request("user=a")); err != nil || !r.GetAllowed() {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := client.CheckRateLimitBatch(t.Context(), batchOf(1)); status.Convert(err).Message() != refuse.Error() {
		t.Error(err)
	}
	if want := []string{weirv1.RateLimiter_CheckRateLimit_FullMethodName, weirv1.RateLimiter_CheckRateLimitBatch_FullMethodName}; !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}
