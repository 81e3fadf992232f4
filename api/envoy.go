package api

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
)

// envoyServer implements Envoy's rate limit service on the native rules: the
// domain picks them, and the entries of a descriptor are its attributes. One call
// is one group, so that a denied descriptor lets no other be counted.
type envoyServer struct {
	rlsv3.UnimplementedRateLimitServiceServer
	*Limiter
}

// ShouldRateLimit implements rlsv3.RateLimitServiceServer.
func (s envoyServer) ShouldRateLimit(ctx context.Context, req *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	start := time.Now()
	if err := within("domain", req.GetDomain(), maxKey); err != nil {
		return nil, err
	}
	switch n := len(req.GetDescriptors()); {
	case n == 0:
		return nil, invalid("descriptors", "must not be empty")
	case n > maxDescriptors:
		return nil, invalid("descriptors", "%d items are more than %d", n, maxDescriptors)
	}
	w := s.newWork()
	defer s.works.Put(w)
	w.request.Domain = req.GetDomain()
	for i, d := range req.GetDescriptors() {
		cost, err := s.addDescriptor(w, req, i, d)
		if err != nil {
			return nil, err
		}
		if err := s.match(w, cost); err != nil {
			return nil, fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	if err := w.endGroup(false); err != nil {
		return nil, err
	}
	s.decide(ctx, w)
	resp := s.renderEnvoy(w)
	s.metrics.envoy.Observe(time.Since(start).Seconds())
	return resp, nil
}

// addDescriptor makes the entries of d the attributes of w.request, and returns
// the descriptor's cost.
func (s envoyServer) addDescriptor(w *work, req *rlsv3.RateLimitRequest, i int, d *commonv3.RateLimitDescriptor) (cost int64, err error) {
	field := func(name string) string { return fmt.Sprintf("descriptors[%d].%s", i, name) }
	if n := len(d.GetEntries()); n > maxAttributes {
		return 0, invalid(field("entries"), "%d items are more than %d", n, maxAttributes)
	}
	if d.GetLimit() != nil {
		return 0, invalid(field("limit"), "overrides are not supported yet")
	}
	attributes := w.request.Attributes[:0]
	for j, e := range d.GetEntries() {
		if n := len(e.GetKey()); n == 0 || n > maxKey {
			return 0, within(field(fmt.Sprintf("entries[%d].key", j)), e.GetKey(), maxKey)
		}
		if len(e.GetValue()) > maxValue {
			return 0, atMost(field(fmt.Sprintf("entries[%d].value", j)), e.GetValue(), maxValue)
		}
		for _, earlier := range attributes {
			if earlier.Key == e.GetKey() {
				return 0, invalid(field(fmt.Sprintf("entries[%d].key", j)), "%q stands there twice", e.GetKey())
			}
		}
		attributes = append(attributes, rules.Attribute{Key: e.GetKey(), Value: e.GetValue()})
	}
	w.request.Attributes = attributes
	hits, from := max(1, uint64(req.GetHitsAddend())), "hits_addend"
	if own := d.GetHitsAddend(); own != nil {
		hits, from = own.GetValue(), field("hits_addend")
	}
	switch {
	case hits > algorithms.MaxCost:
		return 0, invalid(from, "%d is not between 0 and %d", hits, int64(algorithms.MaxCost))
	case d.GetIsNegativeHits():
		return -int64(hits), nil
	}
	return int64(hits), nil
}

func (s envoyServer) renderEnvoy(w *work) *rlsv3.RateLimitResponse {
	resp := &rlsv3.RateLimitResponse{
		OverallCode: rlsv3.RateLimitResponse_OK,
		Statuses:    make([]*rlsv3.RateLimitResponse_DescriptorStatus, len(w.items)),
	}
	for i := range w.items {
		v := w.judge(i)
		s.metrics.count(v)
		resp.Statuses[i] = envoyStatus(w, i, v)
		if !v.allowed {
			resp.OverallCode = rlsv3.RateLimitResponse_OVER_LIMIT
		}
	}
	return resp
}

func envoyStatus(w *work, i int, v verdict) *rlsv3.RateLimitResponse_DescriptorStatus {
	st := &rlsv3.RateLimitResponse_DescriptorStatus{Code: rlsv3.RateLimitResponse_OK}
	if !v.allowed { // of an overloaded node too: Envoy would let an error through
		st.Code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	if v.source == byUnlimited {
		st.LimitRemaining = math.MaxUint32
	}
	if v.by < 0 {
		return st
	}
	matches, takes := w.item(i)
	m, t := &matches[v.by], &takes[v.by]
	if !answered(t) {
		return st
	}
	nominal := &m.Rule.Limits[m.Limit]
	st.CurrentLimit = &rlsv3.RateLimitResponse_RateLimit{
		Name:            m.Rule.ID,
		RequestsPerUnit: uint32(nominal.Limit),
		Unit:            envoyUnit(nominal),
	}
	if v.allowed {
		st.LimitRemaining = remaining(m, &t.Decision)
	}
	st.DurationUntilReset = durationpb.New(time.Duration(t.Decision.ResetAt - t.Decision.At))
	return st
}

// calendarUnits are the units of calendars that Envoy has a name for.
var calendarUnits = map[string]rlsv3.RateLimitResponse_RateLimit_Unit{
	"minute": rlsv3.RateLimitResponse_RateLimit_MINUTE,
	"hour":   rlsv3.RateLimitResponse_RateLimit_HOUR,
	"day":    rlsv3.RateLimitResponse_RateLimit_DAY,
	"week":   rlsv3.RateLimitResponse_RateLimit_WEEK,
	"month":  rlsv3.RateLimitResponse_RateLimit_MONTH,
	"year":   rlsv3.RateLimitResponse_RateLimit_YEAR,
}

// envoyUnit is the unit of a limit whose window is exactly one, where a month has 30
// days and a year 365, as in Envoy's reference server; UNKNOWN otherwise.
func envoyUnit(l *algorithms.Limit) rlsv3.RateLimitResponse_RateLimit_Unit {
	if l.Calendar != nil {
		unit, _, _ := strings.Cut(l.Calendar.String(), "/")
		return calendarUnits[unit]
	}
	switch time.Duration(l.Window) {
	case time.Second:
		return rlsv3.RateLimitResponse_RateLimit_SECOND
	case time.Minute:
		return rlsv3.RateLimitResponse_RateLimit_MINUTE
	case time.Hour:
		return rlsv3.RateLimitResponse_RateLimit_HOUR
	case 24 * time.Hour:
		return rlsv3.RateLimitResponse_RateLimit_DAY
	case 7 * 24 * time.Hour:
		return rlsv3.RateLimitResponse_RateLimit_WEEK
	case 30 * 24 * time.Hour:
		return rlsv3.RateLimitResponse_RateLimit_MONTH
	case 365 * 24 * time.Hour:
		return rlsv3.RateLimitResponse_RateLimit_YEAR
	}
	return rlsv3.RateLimitResponse_RateLimit_UNKNOWN
}
