package rules

import (
	"encoding/binary"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// A counter's name is the sequence domain, rule id, then attribute and value for
// each of one set of Per in order, every one behind its length. Such a sequence can be read
// back in one way only, so no two counters share a name. Nodes of one cluster
// must agree on it: never change it, nor salt.

// appendText appends the encoding of one text of a name.
func appendText[T string | []byte](name []byte, text T) []byte {
	name = binary.AppendUvarint(name, uint64(len(text)))
	return append(name, text...)
}

// salt tells the counters of one rule and subject apart. It is public: the key
// that it is mixed into is not.
func salt(l algorithms.Limit) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, uint64(l.Algorithm))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Window))
	return ring.Hasher{}.Key(b).Lo
}

// prepare computes what Match needs of r beyond what the file says.
func (r *Rule) prepare(order int) {
	r.order = order
	r.name = appendText(appendText(nil, r.Domain), r.ID)
	if len(r.Per) == 0 {
		r.subjects = []subject{{rule: r}}
	}
	for i, set := range r.Per {
		s := subject{rule: r, index: i, per: set}
		for _, attribute := range set {
			s.names = append(s.names, appendText(nil, attribute))
		}
		r.subjects = append(r.subjects, s)
	}
	for _, l := range r.Limits {
		r.salts = append(r.salts, salt(l))
	}
}

// Sizes of the buffers for names, on the stack. All names fit the large one that
// bounds and callers allow; longer ones move to the heap.
const (
	smallName = 256
	largeName = 6144
)

// key returns the common part of the keys of s's counters for req. It is false
// if req lacks an attribute of the set.
func (s *subject) key(h ring.Hasher, req *Request) (ring.Key, bool) {
	var values [maxPer]string
	size := len(s.rule.name)
	for i, attribute := range s.per {
		v, ok := req.value(attribute)
		if !ok {
			return ring.Key{}, false
		}
		values[i] = v
		size += len(s.names[i]) + binary.MaxVarintLen64 + len(v)
	}
	if size > smallName {
		return s.longKey(h, values[:len(s.per)]), true
	}
	var buf [smallName]byte
	return h.Key(s.appendName(buf[:0], values[:len(s.per)])), true
}

// longKey is apart so that only long names pay for the large buffer.
//
//go:noinline
func (s *subject) longKey(h ring.Hasher, values []string) ring.Key {
	var buf [largeName]byte
	return h.Key(s.appendName(buf[:0], values))
}

// appendName appends the name of the counter that values choose, in the set's order.
func (s *subject) appendName(name []byte, values []string) []byte {
	name = append(name, s.rule.name...)
	for i, v := range values {
		name = append(name, s.names[i]...)
		name = appendText(name, v)
	}
	return name
}
