package envoy

import (
	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	envoyrules "github.com/weirlimit/weir/rules/envoy"
)

// decodeRequest decodes a RateLimitRequest, and adds its descriptors to l.
func decodeRequest(p wire.Part, l *wire.List) (domain string, hits uint32, err error) {
	f := wire.FieldsOf(p)
	for f.Next() {
		switch f.Tag {
		case 1<<3 | wire.AsBytes:
			domain = f.Text("domain")
		case 2<<3 | wire.AsBytes:
			l.Add(f.Part, maxDescriptors)
		case 3<<3 | wire.AsVarint:
			hits = uint32(f.Varint)
		}
	}
	return domain, hits, f.Err
}

// descriptor is a RateLimitDescriptor without its entries.
type descriptor struct {
	hasHits, negative bool
	hits              uint64 // MaxCost at most
	tooMany           bool   // there were more hits, which no limit has room for
	unmatched         bool   // it has more entries than any descriptor of the file
	// A limit that the request brings with it:
	hasLimit, hasMultiple bool
	requests              uint32
	unit                  envoyrules.Unit
	multiple              uint64 // of the unit
}

// window is that of the limit, in nanoseconds.
func (d *descriptor) window() int64 { return d.unit.Window() * int64(d.multiple) }

// validOverride reports whether the limit has a unit, and a window that can be counted in.
func (d *descriptor) validOverride() bool {
	unit := d.unit.Window()
	return unit > 0 && d.multiple > 0 && d.multiple <= uint64(int64(algorithms.MaxWindow)/unit)
}

// decodeDescriptor decodes a RateLimitDescriptor, its entries into a list that may have
// been used before.
func decodeDescriptor(p wire.Part, entries *wire.List) (d descriptor, err error) {
	entries.Reset()
	f := wire.FieldsOf(p)
	for f.Next() {
		switch f.Tag {
		case 1<<3 | wire.AsBytes:
			entries.Add(f.Part, check.MaxAttributes)
		case 2<<3 | wire.AsBytes:
			if !d.hasLimit {
				d.hasLimit, d.multiple = true, 1
			}
			f.Err = decodeOverride(f.Part, &d)
		case 3<<3 | wire.AsBytes:
			d.hasHits = true
			f.Err = decodeUint64(f.Part, &d.hits)
		case 4<<3 | wire.AsVarint:
			d.negative = f.Varint != 0
		}
	}
	return d, f.Err
}

// decodeOverride decodes a RateLimitOverride.
func decodeOverride(p wire.Part, d *descriptor) error {
	f := wire.FieldsOf(p)
	for f.Next() {
		switch f.Tag {
		case 1<<3 | wire.AsVarint:
			d.requests = uint32(f.Varint)
		case 2<<3 | wire.AsVarint:
			d.unit = envoyrules.Unit(min(uint32(f.Varint), 1<<8-1)) // no unit, if it is more
		case 3<<3 | wire.AsBytes:
			if !d.hasMultiple {
				d.multiple, d.hasMultiple = 0, true // if it says nothing more
			}
			f.Err = decodeUint64(f.Part, &d.multiple)
			d.multiple = uint64(uint32(d.multiple))
		}
	}
	return f.Err
}

// decodeUint64 decodes a UInt64Value.
func decodeUint64(p wire.Part, into *uint64) error {
	f := wire.FieldsOf(p)
	for f.Next() {
		if f.Tag == 1<<3|wire.AsVarint {
			*into = f.Varint
		}
	}
	return f.Err
}

// decodeEntry decodes an entry of a descriptor, whose value may be any bytes.
func decodeEntry(p wire.Part) (key, value string, err error) {
	f := wire.FieldsOf(p)
	for f.Next() {
		switch f.Tag {
		case 1<<3 | wire.AsBytes:
			key = f.Text("key")
		case 2<<3 | wire.AsBytes:
			value = f.Part.Text
		}
	}
	return key, value, f.Err
}
