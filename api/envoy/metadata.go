package envoy

import (
	"fmt"
	"strings"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir/api/internal/wire"
)

// appendMetadata appends the dynamic metadata of a RateLimitResponse: the request, in the form of
// envoyproxy/ratelimit, and the metadata of the descriptors that allowed it.
func appendMetadata(b []byte, w *work) []byte {
	descriptors := make([]any, len(w.asked))
	passed := make(map[string]any)
	for i := range w.asked {
		a := &w.asked[i]
		descriptors[i] = a.metadata()
		if a.rule != nil && a.kind == byDescriptor && w.statuses[i].passed {
			merge(passed, a.rule.Descriptor.Metadata)
		}
	}
	metadata := map[string]any{"domain": w.Request.Domain, "descriptors": descriptors}
	if hits := w.hits; hits != 0 {
		metadata["hitsAddend"] = hits
	}
	if len(passed) > 0 {
		metadata["metadata"] = passed
	}
	s, err := structpb.NewStruct(metadata)
	if err != nil {
		panic(fmt.Sprintf("envoy: plain data as a Struct: %v", err)) // cannot be: no types but those, valid UTF-8
	}
	encoded, err := proto.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("envoy: encode a Struct: %v", err)) // cannot be either
	}
	return protowire.AppendBytes(wire.AppendTag(b, 6, protowire.BytesType), encoded)
}

// metadata tells one descriptor of the request.
func (a *asked) metadata() map[string]any {
	entries := make([]any, len(a.entries))
	for i, e := range a.entries {
		entries[i] = strings.ToValidUTF8(e.Key+"="+e.Value, "\uFFFD")
	}
	m := map[string]any{"entries": entries}
	if a.d.hasLimit {
		limit := fmt.Sprintf("unit:%v", typev3.RateLimitUnit(a.d.unit))
		if a.d.requests != 0 { // messages are written without what is 0
			limit = fmt.Sprintf("requests_per_unit:%d %s", a.d.requests, limit)
		}
		if a.d.hasMultiple {
			limit += fmt.Sprintf(" unit_multiplier:%d", a.d.multiple)
		}
		m["limit"] = limit
	}
	if a.d.hasHits {
		m["hitsAddend"] = a.d.hits
	}
	return m
}

// merge adds to into what it lacks, mapping by mapping. It changes nothing of from.
func merge(into, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		known, has := into[key]
		if knownMap, both := known.(map[string]any); both && isMap {
			merge(knownMap, inner)
			continue
		}
		if has {
			continue
		}
		if isMap {
			copied := make(map[string]any, len(inner))
			merge(copied, inner)
			value = copied
		}
		into[key] = value
	}
}
