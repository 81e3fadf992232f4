package envoy

import (
	"testing"
	"unicode/utf8"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/apitest"
)

// What is decoded by hand is what the library decodes, and what it refuses is refused.
func TestDecodeAsLibrary(t *testing.T) {
	d := apitest.Decoder{
		Fresh:     func() proto.Message { return &rlsv3.RateLimitRequest{} },
		Decode:    func(b []byte) (proto.Message, error) { return decodeWhole(wire.NewPart(b)) },
		Normalize: normalize,
	}
	rapid.Check(t, func(t *rapid.T) { d.CheckAsLibrary(t, apitest.Encodings(d.Fresh).Draw(t, "bytes")) })
}

func decodeWhole(p wire.Part) (*rlsv3.RateLimitRequest, error) {
	var descriptors, entries wire.List
	m := &rlsv3.RateLimitRequest{}
	var err error
	m.Domain, m.HitsAddend, err = decodeRequest(p, &descriptors)
	for i := 0; i < len(descriptors.Parts) && err == nil; i++ {
		var d descriptor
		d, err = decodeDescriptor(descriptors.Parts[i], &entries)
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
		for j := 0; j < len(entries.Parts) && err == nil; j++ {
			e := &commonv3.RateLimitDescriptor_Entry{}
			e.Key, e.Value, err = decodeEntry(entries.Parts[j])
			if err == nil && !utf8.ValidString(e.GetValue()) { // which rules refuse, and descriptors do not
				err = wire.Invalid("value", "%q is not UTF-8", e.GetValue())
			}
			whole.Entries = append(whole.Entries, e)
		}
		m.Descriptors = append(m.Descriptors, whole)
	}
	return m, err
}

// normalize makes one of all units that are none.
func normalize(m proto.Message) {
	for _, d := range m.(*rlsv3.RateLimitRequest).GetDescriptors() {
		if d.GetLimit() != nil {
			d.Limit.Unit = typev3.RateLimitUnit(min(uint32(d.GetLimit().GetUnit()), 1<<8-1))
		}
	}
}

// What cannot be decoded is the caller's fault, and the error says where it is.
func TestUndecodable(t *testing.T) {
	f := newFixture(t, boundRules)
	for message, want := range map[string]string{
		"\x0a\x01\xff":                          `domain: "\xff" is not UTF-8`,
		"\x02\x00":                              "message: the last 2 bytes cannot be decoded",
		"\x0a\x01d\x12\x00\x12\x01\x0f":         "descriptors[1].message: the last 1 bytes cannot be decoded",
		"\x0a\x01d\x12\x05\x0a\x03\x0a\x01\xff": `descriptors[0].entries[0].key: "\xff" is not UTF-8`,
	} {
		var answer wire.Encoded
		err := f.dial(t).Invoke(t.Context(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, wire.CopyEncoded([]byte(message)), &answer, grpc.ForceCodecV2(wire.Codec()))
		refused(t, err, want)
	}
	if f.Shard.Len() != 0 {
		t.Error("a refused request was counted")
	}
}
