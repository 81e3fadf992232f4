package api

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
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
	return decoded(ctx, s.checkEnvoy, req, new(rlsv3.RateLimitResponse))
}

// checkEnvoy answers a RateLimitRequest of Envoy.
func (l *Limiter) checkEnvoy(ctx context.Context, request []byte) (encoded, error) {
	start := time.Now()
	w := l.newWork()
	defer l.works.Put(w)
	if err := l.addEnvoy(w, newPart(request)); err != nil {
		return encoded{}, err
	}
	l.ask(ctx, w)
	var verdicts verdictCounts
	w.out = appendEnvoyResponse(w.out[:0], w, &verdicts)
	l.metrics.count(&verdicts)
	l.metrics.envoy.Observe(time.Since(start).Seconds())
	return copyEncoded(w.out), nil
}

// addEnvoy makes a group of the descriptors of a RateLimitRequest.
func (l *Limiter) addEnvoy(w *work, request part) (err error) {
	var hits uint32
	if w.request.Domain, hits, err = decodeEnvoy(request, &w.list); err != nil {
		return err
	}
	if err := within("domain", w.request.Domain, maxKey); err != nil {
		return err
	}
	switch n := w.list.n; {
	case n == 0:
		return invalid("descriptors", "must not be empty")
	case n > maxDescriptors:
		return invalid("descriptors", "%d items are more than %d", n, maxDescriptors)
	}
	for i, p := range w.list.parts {
		cost, err := w.addDescriptor(i, p, hits)
		if err != nil {
			return err
		}
		if err := l.match(w, cost); err != nil {
			return fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	return w.endGroup(false)
}

// addDescriptor makes the entries of the i-th RateLimitDescriptor the attributes of
// w.request, and returns the descriptor's cost.
func (w *work) addDescriptor(i int, p part, requestHits uint32) (cost int64, err error) {
	field := func(name string) string { return fmt.Sprintf("descriptors[%d].%s", i, name) }
	d, err := decodeDescriptor(p, &w.entries)
	if err != nil {
		return 0, under(fmt.Sprintf("descriptors[%d]", i), err)
	}
	if n := w.entries.n; n > maxAttributes {
		return 0, invalid(field("entries"), "%d items are more than %d", n, maxAttributes)
	}
	if d.hasLimit {
		return 0, invalid(field("limit"), "overrides are not supported yet")
	}
	w.request.Attributes = w.request.Attributes[:0]
	for j, e := range w.entries.parts {
		if err := w.addEntry(e); err != nil {
			return 0, under(field(fmt.Sprintf("entries[%d]", j)), err)
		}
	}
	hits, from := max(1, uint64(requestHits)), "hits_addend"
	if d.hasHits {
		hits, from = d.hits, field("hits_addend")
	}
	switch {
	case hits > algorithms.MaxCost:
		return 0, invalid(from, "%d is not between 0 and %d", hits, int64(algorithms.MaxCost))
	case d.negative:
		return -int64(hits), nil
	}
	return int64(hits), nil
}

// addEntry makes an entry of a descriptor an attribute of w.request.
func (w *work) addEntry(p part) error {
	key, value, err := decodePair(p)
	if err != nil {
		return err
	}
	if err := within("key", key, maxKey); err != nil {
		return err
	}
	if err := atMost("value", value, maxValue); err != nil {
		return err
	}
	for _, earlier := range w.request.Attributes {
		if earlier.Key == key {
			return invalid("key", "%q stands there twice", key)
		}
	}
	w.request.Attributes = append(w.request.Attributes, rules.Attribute{Key: key, Value: value})
	return nil
}

// decodeEnvoy decodes a RateLimitRequest, and adds its descriptors to l.
func decodeEnvoy(p part, l *list) (domain string, hits uint32, err error) {
	f := fieldsOf(p)
	for f.next() {
		switch f.tag {
		case 1<<3 | asBytes:
			domain = f.string("domain")
		case 2<<3 | asBytes:
			l.add(f.part, maxDescriptors)
		case 3<<3 | asVarint:
			hits = uint32(f.varint)
		}
	}
	return domain, hits, f.err
}

// descriptor is a RateLimitDescriptor without its entries.
type descriptor struct {
	hasLimit, hasHits, negative bool
	hits                        uint64
}

// decodeDescriptor decodes a RateLimitDescriptor, its entries into a list that may have
// been used before.
func decodeDescriptor(p part, entries *list) (d descriptor, err error) {
	entries.reset()
	f := fieldsOf(p)
	for f.next() {
		switch f.tag {
		case 1<<3 | asBytes:
			entries.add(f.part, maxAttributes)
		case 2<<3 | asBytes:
			d.hasLimit = true
		case 3<<3 | asBytes:
			d.hasHits = true
			f.err = decodeUint64(f.part, &d.hits)
		case 4<<3 | asVarint:
			d.negative = f.varint != 0
		}
	}
	return d, f.err
}

// decodeUint64 decodes a UInt64Value.
func decodeUint64(p part, into *uint64) error {
	f := fieldsOf(p)
	for f.next() {
		if f.tag == 1<<3|asVarint {
			*into = f.varint
		}
	}
	return f.err
}

// appendEnvoyResponse appends a RateLimitResponse, and counts its verdicts.
func appendEnvoyResponse(b []byte, w *work, verdicts *verdictCounts) []byte {
	overall := rlsv3.RateLimitResponse_OK
	for i := range w.items {
		v := w.judge(i)
		verdicts.add(v)
		if !v.allowed {
			overall = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		b = appendEnvoyStatus(b, w, i, v)
	}
	return appendVarint(b, 1, uint64(overall))
}

// appendEnvoyStatus appends the DescriptorStatus of the i-th item.
func appendEnvoyStatus(b []byte, w *work, i int, v verdict) []byte {
	b, begin := beginMessage(b, 2)
	code := rlsv3.RateLimitResponse_OK
	if !v.allowed { // of an overloaded node too: Envoy would let an error through
		code = rlsv3.RateLimitResponse_OVER_LIMIT
	}
	b = appendVarint(b, 1, uint64(code))
	if v.source == byUnlimited {
		b = appendVarint(b, 3, math.MaxUint32)
	}
	if v.by >= 0 {
		matches, takes := w.item(i)
		b = appendEnvoyLimit(b, &matches[v.by], &takes[v.by], v.allowed)
	}
	return endMessage(b, begin)
}

// appendEnvoyLimit appends the fields of a DescriptorStatus that tell of the limit that
// decided.
func appendEnvoyLimit(b []byte, m *rules.Match, t *shard.Take, allowed bool) []byte {
	if !answered(t) {
		return b
	}
	nominal := &m.Rule.Limits[m.Limit]
	b, begin := beginMessage(b, 2)
	b = appendVarint(b, 1, uint64(uint32(nominal.Limit)))
	b = appendVarint(b, 2, uint64(envoyUnit(nominal)))
	b = appendString(b, 3, m.Rule.ID)
	b = endMessage(b, begin)
	if allowed {
		b = appendVarint(b, 3, uint64(remaining(m, &t.Decision)))
	}
	return appendDuration(b, 4, t.Decision.ResetAt-t.Decision.At)
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
