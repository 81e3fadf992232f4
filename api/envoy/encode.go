package envoy

import (
	"strconv"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	envoyrules "github.com/weirlimit/weir/rules/envoy"
)

// appendResponse appends a RateLimitResponse.
func (s *Service) appendResponse(b []byte, w *work, r result) []byte {
	for i := range w.statuses {
		b = w.statuses[i].appendTo(b)
	}
	for range w.list.N - len(w.statuses) { // none, unless there are too many
		b = (&descriptorStatus{over: true}).appendTo(b)
	}
	if names := s.config.Headers; len(names) > 0 && r.told >= 0 {
		st := &w.statuses[r.told]
		reset := check.CeilSeconds(st.reset)
		for i, value := range []int64{int64(st.requests), int64(st.remaining), reset} {
			b = appendHeader(b, names[i], value)
		}
		if r.over && st.over {
			b = appendHeader(b, "Retry-After", max(1, reset))
		}
	}
	if s.config.Metadata {
		b = appendMetadata(b, w)
	}
	overall := rlsv3.RateLimitResponse_OK
	if r.over {
		overall = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	return wire.AppendVarint(b, 1, uint64(overall))
}

// appendHeader appends a HeaderValue to add to the response.
func appendHeader(b []byte, name string, value int64) []byte {
	b, begin := wire.BeginMessage(b, 3)
	b = wire.AppendString(b, 1, name)
	b = wire.AppendString(b, 2, strconv.FormatInt(value, 10))
	return wire.EndMessage(b, begin)
}

// appendTo appends a DescriptorStatus.
func (s *descriptorStatus) appendTo(b []byte) []byte {
	b, begin := wire.BeginMessage(b, 2)
	code := rlsv3.RateLimitResponse_OK
	if s.over {
		code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	b = wire.AppendVarint(b, 1, uint64(code))
	if s.limited {
		var limit int
		b, limit = wire.BeginMessage(b, 2)
		b = wire.AppendVarint(b, 1, uint64(s.requests))
		b = wire.AppendVarint(b, 2, uint64(s.unit))
		b = wire.AppendString(b, 3, s.name)
		if s.multiple > 1 {
			b = appendUint(b, 4, s.multiple)
		}
		b = wire.EndMessage(b, limit)
	}
	b = wire.AppendVarint(b, 3, uint64(s.remaining))
	if s.limited {
		b = wire.AppendDuration(b, 4, s.reset)
	}
	return wire.EndMessage(b, begin)
}

// appendUint appends a UInt32Value.
func appendUint(b []byte, number protowire.Number, v uint64) []byte {
	b, begin := wire.BeginMessage(b, number)
	b = wire.AppendVarint(b, 1, v)
	return wire.EndMessage(b, begin)
}

// unitOf is the largest unit that a limit's window is a multiple of, and which one. A month has 30 days
// and a year 365, as in Envoy's reference server, except for calendars. It is 0 if there is none.
func unitOf(l *algorithms.Limit) (unit envoyrules.Unit, multiple uint64) {
	if l.Calendar != nil {
		name, _, _ := strings.Cut(l.Calendar.String(), "/")
		return envoyrules.ParseUnit(name), 1
	}
	for u := envoyrules.Second; u.Window() > 0; u++ {
		if l.Window%u.Window() == 0 && u.Window() > unit.Window() {
			unit, multiple = u, uint64(l.Window/u.Window())
		}
	}
	return unit, multiple
}
