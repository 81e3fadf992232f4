package apitest

import (
	"fmt"
	"strconv"
	"strings"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Descriptors reads each text's entries as key=value, and in addition hits=N,
// override=REQUESTS/UNIT*MULTIPLE and negative.
func Descriptors(texts ...string) []*commonv3.RateLimitDescriptor {
	ds := make([]*commonv3.RateLimitDescriptor, len(texts))
	for i, text := range texts {
		d := &commonv3.RateLimitDescriptor{}
		for field := range strings.FieldsSeq(text) {
			key, value, entry := strings.Cut(field, "=")
			switch {
			case key == "hits":
				n, _ := strconv.ParseUint(value, 10, 64)
				d.HitsAddend = wrapperspb.UInt64(n)
			case key == "override":
				var requests, unit, multiple uint32
				n, _ := fmt.Sscanf(value, "%d/%d*%d", &requests, &unit, &multiple)
				d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: typev3.RateLimitUnit(unit)}
				if n == 3 {
					d.Limit.UnitMultiplier = wrapperspb.UInt32(multiple)
				}
			case field == "negative":
				d.IsNegativeHits = true
			case entry:
				d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		ds[i] = d
	}
	return ds
}

// BriefEnvoy tells the overall code and the headers, and after each bar every field of a status.
func BriefEnvoy(r *rlsv3.RateLimitResponse) string {
	text := r.GetOverallCode().String()
	for _, h := range r.GetResponseHeadersToAdd() {
		text += fmt.Sprintf(" %s=%s", h.GetKey(), h.GetValue())
	}
	for _, st := range r.GetStatuses() {
		text += " | " + st.GetCode().String()
		if l := st.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %s %d/%v", l.GetName(), l.GetRequestsPerUnit(), l.GetUnit())
			if m := l.GetUnitMultiplier(); m != nil {
				text += fmt.Sprintf("*%d", m.GetValue())
			}
		}
		if st.GetLimitRemaining() != 0 || st.GetDurationUntilReset() != nil {
			text += fmt.Sprintf(" left %d reset %v", st.GetLimitRemaining(), st.GetDurationUntilReset().AsDuration())
		}
	}
	return text
}
