package shard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Records give a follower the counters of a partition. Each is a tag and, little-endian:
const (
	tagClock      = 1 // the partition's latest instant, 8 bytes, and its sharing, 4
	tagSlot       = 2 // a slot without marks, slotBytes
	tagGone       = 3 // the high half of a key, 8, and the bits of its low half that slots know, 2
	tagRange      = 4 // two high halves, 8 each; a number, 2; as many slots: all that there are from the one to the other
	tagLong       = 5 // a key, high half first, 16; expires, 4; share, 2; a length, 4; a Long of that length
	tagLongGone   = 6 // a key, 16
	tagBeginLongs = 7 // from here on come all Longs that there are,
	tagEndLongs   = 8 // up to here
)

const (
	slotBytes  = 32
	rangeBytes = 1 + 8 + 8 + 2 // of a range without its slots
)

func appendClock(b []byte, p *partition) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, tagClock), uint64(p.latest))
	return binary.LittleEndian.AppendUint32(b, p.sharing)
}

func appendSlot(b []byte, s *slot) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.hi)
	b = binary.LittleEndian.AppendUint64(b, s.state.A)
	b = binary.LittleEndian.AppendUint64(b, s.state.B)
	return binary.LittleEndian.AppendUint16(appendUsage(b, s.usage()), s.lo)
}

func appendUsage(b []byte, u usage) []byte {
	b = binary.LittleEndian.AppendUint32(b, u.expires)
	return binary.LittleEndian.AppendUint16(b, u.share)
}

func appendGone(b []byte, key ring.Key) []byte {
	b = binary.LittleEndian.AppendUint64(append(b, tagGone), key.Hi)
	return binary.LittleEndian.AppendUint16(b, lowBits(key))
}

// appendRange appends the head of a range, which setRange completes.
func appendRange(b []byte) []byte {
	var empty [rangeBytes - 1]byte
	return append(append(b, tagRange), empty[:]...)
}

func setRange(b []byte, from, to uint64, n int) {
	binary.LittleEndian.PutUint64(b[1:], from)
	binary.LittleEndian.PutUint64(b[9:], to)
	binary.LittleEndian.PutUint16(b[17:], uint16(n))
}

func appendLong(b []byte, e *longEntry) []byte {
	b = appendUsage(appendKey(append(b, tagLong), e.key), e.usage)
	head := len(b)
	b = e.counter.AppendBinary(append(b, 0, 0, 0, 0))
	binary.LittleEndian.PutUint32(b[head:], uint32(len(b)-head-4))
	return b
}

func appendKey(b []byte, key ring.Key) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, key.Hi), key.Lo)
}

// record is one record. Fields that its tag does not use are empty.
type record struct {
	tag      byte
	latest   int64
	sharing  uint32
	from, to uint64
	slots    []byte
	key      ring.Key
	usage    usage
	long     []byte
}

var errShort = errors.New("a record ends early")

// nextRecord returns the first record and what comes behind it.
func nextRecord(b []byte) (r record, rest []byte, err error) {
	in := reader{rest: b[1:]}
	switch r.tag = b[0]; r.tag {
	case tagClock:
		r.latest, r.sharing = int64(in.uint64()), in.uint32()
	case tagSlot:
		r.slots = in.bytes(slotBytes)
	case tagGone:
		r.key = ring.Key{Hi: in.uint64(), Lo: uint64(in.uint16()) << 48}
	case tagRange:
		r.from, r.to = in.uint64(), in.uint64()
		r.slots = in.bytes(int(in.uint16()) * slotBytes)
	case tagLong:
		r.key, r.usage = in.key(), usage{in.uint32(), in.uint16()}
		r.long = in.bytes(int(in.uint32()))
	case tagLongGone:
		r.key = in.key()
	case tagBeginLongs, tagEndLongs:
	default:
		return r, nil, fmt.Errorf("a record's tag of %d is not between %d and %d", r.tag, tagClock, tagEndLongs)
	}
	if in.short {
		return r, nil, errShort
	}
	return r, in.rest, nil
}

// slot returns the i-th slot of r.
func (r *record) slot(i int) slot {
	b := (*[slotBytes]byte)(r.slots[i*slotBytes:])
	return slot{
		hi:      binary.LittleEndian.Uint64(b[:]),
		state:   algorithms.State{A: binary.LittleEndian.Uint64(b[8:]), B: binary.LittleEndian.Uint64(b[16:])},
		expires: binary.LittleEndian.Uint32(b[24:]), share: binary.LittleEndian.Uint16(b[28:]), lo: binary.LittleEndian.Uint16(b[30:]),
	}
}

func (r *record) len() int { return len(r.slots) / slotBytes }

// check reports what is wrong with a record of partition p of n.
func (r *record) check(p, n uint32) error {
	switch {
	case r.latest < 0:
		return fmt.Errorf("a record has the clock %d, which is below 0", r.latest)
	case (r.tag == tagLong || r.tag == tagLongGone) && r.key.Partition(n) != p:
		return fmt.Errorf("a record of partition %d has a key of partition %d", p, r.key.Partition(n))
	}
	for i, last := 0, uint64(math.MaxUint64); i < r.len(); i++ {
		e := r.slot(i)
		if err := (usage{e.expires, e.share}).check(); err != nil {
			return err
		}
		if r.tag == tagRange && (e.hi > last || ^e.hi < r.from || ^e.hi > r.to) {
			return fmt.Errorf("a key of %x is out of order, or not between %x and %x", ^e.hi, r.from, r.to)
		}
		last = e.hi
	}
	if r.tag != tagLong {
		return nil
	}
	if err := r.usage.check(); err != nil {
		return err
	}
	var x algorithms.Long
	return x.UnmarshalBinary(r.long)
}

// check reports what is wrong with the usage of a record.
func (u usage) check() error {
	switch {
	case u.expires == 0:
		return errors.New("a counter's record expires at second 0, which marks an empty slot")
	case u.share&marks != 0:
		return fmt.Errorf("a counter's record has the share %d, which is not a multiple of %d", u.share, marks+1)
	default:
		return nil
	}
}

// reader reads numbers and remembers whether the input was too short.
type reader struct {
	rest  []byte
	short bool
}

// bytes returns the next n bytes.
func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) { // below 0 where an int has 32 bits
		r.short = true
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) uint64() (v uint64) {
	if b := r.bytes(8); b != nil {
		v = binary.LittleEndian.Uint64(b)
	}
	return v
}

func (r *reader) uint32() (v uint32) {
	if b := r.bytes(4); b != nil {
		v = binary.LittleEndian.Uint32(b)
	}
	return v
}

func (r *reader) uint16() (v uint16) {
	if b := r.bytes(2); b != nil {
		v = binary.LittleEndian.Uint16(b)
	}
	return v
}

func (r *reader) key() ring.Key { return ring.Key{Hi: r.uint64(), Lo: r.uint64()} }
