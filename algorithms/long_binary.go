package algorithms

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A Long travels as varints, as short as they can be:
//
//	buckets latest entries { tick tokens }
//
// Of the first entry the tick is there, of the others by how much it is above the one
// before. Its window does not travel: the receiver has it from the counter's limit.

// AppendBinary appends x to b, MaxLongBytes at the most.
func (x *Long) AppendBinary(b []byte) []byte {
	for _, n := range [...]int64{x.buckets, x.latest, int64(x.count)} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	var last int64
	for i := range x.count {
		tick := x.at(i).tick
		b = binary.AppendUvarint(b, uint64(tick-last))
		b = binary.AppendUvarint(b, uint64(x.tokens(i)))
		last = tick
	}
	return b
}

// UnmarshalBinary makes x what AppendBinary has written. What it has not written is an
// error that says where, and leaves x alone.
func (x *Long) UnmarshalBinary(b []byte) error {
	if len(b) > MaxLongBytes {
		return fmt.Errorf("bytes: %d are more than %d", len(b), MaxLongBytes)
	}
	r := longReader{rest: b}
	y := Long{
		buckets: r.next("buckets", 0, MaxBuckets),
		latest:  r.next("latest", 0, math.MaxInt64),
	}
	r.entries(&y)
	if len(r.rest) > 0 && r.err == nil {
		return fmt.Errorf("bytes: %d are left over after %d entries", len(r.rest), y.count)
	}
	if r.err == nil {
		*x = y
	}
	return r.err
}

// longReader reads numbers until one is wrong, and zeros from then on.
type longReader struct {
	rest []byte
	err  error
}

// entries reads those of y, whose other fields are there. No tick is above its instant.
func (r *longReader) entries(y *Long) {
	y.count = int(r.next("entries", 0, int64(clock{buckets: y.buckets}.most())))
	if y.count == 0 {
		return
	}
	y.ring = make([]entry, 0, min(y.count, len(r.rest)/2)) // no more than there can be
	tick, used := int64(0), int64(0)
	for i := range y.count {
		tick += r.next("tick", int64(min(i, 1)), y.latest-tick)
		used += r.next("tokens", 1, maxUsed-used)
		if r.err != nil {
			r.err = fmt.Errorf("entry %d: %w", i, r.err)
			return
		}
		y.ring = append(y.ring, entry{tick, used})
	}
}

// next reads the number of a field, which must be between low and high.
func (r *longReader) next(field string, low, high int64) int64 {
	if r.err != nil {
		return 0
	}
	n, size := binary.Uvarint(r.rest)
	switch {
	case size <= 0:
		r.err = fmt.Errorf("%s: %x is not a whole number of 64 bits", field, r.rest[:min(len(r.rest), binary.MaxVarintLen64)])
	case size > 1 && r.rest[size-1] == 0:
		r.err = fmt.Errorf("%s: %d is written in %d bytes, more than it takes", field, n, size)
	case n < uint64(low) || n > uint64(high):
		r.err = fmt.Errorf("%s: %d is not between %d and %d", field, n, low, high)
	default:
		r.rest = r.rest[size:]
		return int64(n)
	}
	return 0
}
