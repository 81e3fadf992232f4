package api

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
)

// Envoy says how Envoy's API answers. The zero value is the default.
type Envoy struct {
	// CountDenied counts every descriptor by itself, and when it is over its limit, too,
	// as envoyproxy/ratelimit does. Otherwise a request is counted whole or not at all. It
	// is for descriptors that count in windows.
	CountDenied bool
	// Shadow never denies a request; the statuses tell what would have.
	Shadow bool
	// Quota treats all descriptors as if their quota_mode were set.
	Quota bool
	// Headers are the names of three headers to add to responses: for the limit, what
	// remains, and in how many seconds it is reset. None means no headers.
	Headers []string
	// Metadata adds dynamic metadata to answers.
	Metadata bool
	// NearLimit is the share of a limit from which on hits count as near it, 0 for 0.8.
	NearLimit float64
	// Lyft says how descriptors count, for limits that requests bring with them.
	Lyft rules.Lyft
	// NeedsRules makes GET /healthcheck fail while there are no rules.
	NeedsRules bool
}

// envoyServer implements Envoy's rate limit service. In a domain of descriptors, those
// of a request are matched as envoyproxy/ratelimit does it; in one of rules, the entries
// of a descriptor are its attributes. One call is one group, so that a denied descriptor
// lets no other be counted.
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
		return encoded{}, l.envoyStats.failed(err)
	}
	l.send(ctx, w)
	l.normalize(w)
	l.tallies.count(w)
	r, err := l.judgeEnvoy(ctx, w)
	if err != nil {
		return encoded{}, l.envoyStats.failed(err)
	}
	w.out = l.appendEnvoyResponse(w.out[:0], w, r)
	l.metrics.envoy.Observe(time.Since(start).Seconds())
	return copyEncoded(w.out), nil
}

// envoyWork is what it takes, beside work, to decide a request of Envoy.
type envoyWork struct {
	descriptors *rules.Descriptors // of the domain, nil if it has none
	strict      bool               // the domain has rules, which have bounds of their own
	hits        uint32             // of the request
	asked       []asked            // by descriptor
	statuses    []envoyStatus      // likewise
	replaced    map[string]bool    // names of limits that do not apply
	names       []byte             // of asked, one after the other
}

func (w *envoyWork) reset() {
	clear(w.asked) // their entries are the request's
	clear(w.replaced)
	*w = envoyWork{asked: w.asked[:0], statuses: w.statuses[:0], replaced: w.replaced, names: w.names[:0]}
}

// addEnvoy makes a group of the descriptors of a RateLimitRequest.
func (l *Limiter) addEnvoy(w *work, request part) (err error) {
	w.envoy.reset()
	if w.request.Domain, w.envoy.hits, err = decodeEnvoy(request, &w.list); err != nil {
		return err
	}
	if err := within("domain", w.request.Domain, maxEnvoyKey); err != nil {
		return err
	}
	switch n := w.list.n; {
	case n == 0:
		return invalid("descriptors", "must not be empty")
	case n > maxDescriptors:
		return invalid("descriptors", "%d items are more than %d", n, maxDescriptors)
	}
	w.envoy.descriptors = w.set.Descriptors(w.request.Domain)
	w.envoy.strict = w.envoy.descriptors == nil && w.set.HasDomain(w.request.Domain)
	for i, p := range w.list.parts {
		d, err := w.addDescriptor(i, p)
		if err != nil {
			return err
		}
		if err := l.matchEnvoy(w, d); err != nil {
			return fmt.Errorf("descriptors[%d]: %w", i, err)
		}
	}
	l.takeAsked(w)
	return w.endGroup(false)
}

// addDescriptor makes the entries of the i-th RateLimitDescriptor the attributes of
// w.request, and returns the rest of it, checked.
func (w *work) addDescriptor(i int, p part) (descriptor, error) {
	field := func(name string) string { return fmt.Sprintf("descriptors[%d].%s", i, name) }
	d, err := decodeDescriptor(p, &w.entries)
	if err != nil {
		return d, under(fmt.Sprintf("descriptors[%d]", i), err)
	}
	if n := w.entries.n; n > maxAttributes {
		return d, invalid(field("entries"), "%d items are more than %d", n, maxAttributes)
	}
	if err := d.validOverride(); err != nil {
		return d, under(field("limit"), err)
	}
	w.request.Attributes = w.request.Attributes[:0]
	for j, e := range w.entries.parts {
		if err := w.addEntry(e); err != nil {
			return d, under(field(fmt.Sprintf("entries[%d]", j)), err)
		}
	}
	if !d.hasHits {
		d.hits = max(1, uint64(w.envoy.hits))
	}
	if d.hits > algorithms.MaxCost {
		from := "hits_addend"
		if d.hasHits {
			from = field(from)
		}
		return d, invalid(from, "%d is not between 0 and %d", d.hits, int64(algorithms.MaxCost))
	}
	return d, nil
}

// addEntry makes an entry of a descriptor an attribute of w.request. What callers of an
// Envoy may choose, the values, is an error only where rules have bounds for it: an error
// may let a request pass.
func (w *work) addEntry(p part) error {
	key, value, err := decodeEntry(p)
	if err != nil {
		return err
	}
	w.request.Attributes = append(w.request.Attributes, rules.Attribute{Key: key, Value: value})
	if !w.envoy.strict {
		return within("key", key, maxEnvoyKey)
	}
	if err := within("key", key, maxKey); err != nil {
		return err
	}
	if err := atMost("value", value, maxValue); err != nil {
		return err
	}
	if !utf8.ValidString(value) {
		return invalid("value", "%q is not UTF-8", value)
	}
	for _, earlier := range w.request.Attributes[:len(w.request.Attributes)-1] {
		if earlier.Key == key {
			return invalid("key", "%q stands there twice", key)
		}
	}
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
	hasHits, negative bool
	hits              uint64
	// A limit that the request brings with it:
	hasLimit, hasMultiple bool
	requests              uint32
	unit                  rules.Unit
	multiple              uint64 // of the unit
}

// window is that of the limit, in nanoseconds.
func (d *descriptor) window() int64 { return d.unit.Window() * int64(d.multiple) }

func (d *descriptor) validOverride() error {
	const day = 24 * time.Hour
	switch unit := time.Duration(d.unit.Window()); {
	case !d.hasLimit:
	case unit == 0:
		return invalid("unit", "%d is not a unit", uint8(d.unit))
	case d.multiple == 0 || d.multiple > uint64(algorithms.MaxWindow/unit):
		return invalid("unit_multiplier", "%d is not between 1 and %d, which is %d days at most", d.multiple, algorithms.MaxWindow/unit, algorithms.MaxWindow/day)
	}
	return nil
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
			if !d.hasLimit {
				d.hasLimit, d.multiple = true, 1
			}
			f.err = decodeOverride(f.part, &d)
		case 3<<3 | asBytes:
			d.hasHits = true
			f.err = decodeUint64(f.part, &d.hits)
		case 4<<3 | asVarint:
			d.negative = f.varint != 0
		}
	}
	return d, f.err
}

// decodeOverride decodes a RateLimitOverride.
func decodeOverride(p part, d *descriptor) error {
	f := fieldsOf(p)
	for f.next() {
		switch f.tag {
		case 1<<3 | asVarint:
			d.requests = uint32(f.varint)
		case 2<<3 | asVarint:
			d.unit = rules.Unit(min(uint32(f.varint), 1<<8-1)) // no unit, if it is more
		case 3<<3 | asBytes:
			if !d.hasMultiple {
				d.multiple, d.hasMultiple = 0, true // if it says nothing more
			}
			f.err = decodeUint64(f.part, &d.multiple)
			d.multiple = uint64(uint32(d.multiple))
		}
	}
	return f.err
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

// decodeEntry decodes an entry of a descriptor, whose value may be any bytes.
func decodeEntry(p part) (key, value string, err error) {
	f := fieldsOf(p)
	for f.next() {
		switch f.tag {
		case 1<<3 | asBytes:
			key = f.string("key")
		case 2<<3 | asBytes:
			value = f.part.text
		}
	}
	return key, value, f.err
}
