package rules

import (
	"encoding/binary"
	"net/netip"
	"slices"

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
	if l.Calendar != nil {
		b = append(b, l.Calendar.String()...) // longer than all without
	}
	return ring.Hasher{}.Key(b).Lo
}

// prepare computes what Match needs of r beyond what the file says.
func (r *Rule) prepare(order int) {
	r.order = order
	var salts []uint64
	for _, l := range r.Limits {
		salts = append(salts, salt(l))
		r.blocks = r.blocks || l.Limit == 0
		if r.Mode.Kind != Hard {
			limit, above := raise(l, r.Mode.Percent)
			r.raised = append(r.raised, raised{above, limit})
		}
	}
	sets := r.Per
	if len(sets) == 0 {
		sets = [][]string{nil}
	}
	for i, set := range sets {
		s := subject{
			rule: r, index: i, per: set, ip: slices.Index(set, IPAttribute),
			name:  appendText(appendText(nil, r.Domain), r.ID),
			salts: salts,
			plain: !r.Unlimited && r.Mode.Kind != Soft && r.Enforce == 100,
		}
		for j, attribute := range set {
			if j == 0 {
				s.name = appendText(s.name, attribute)
			} else {
				s.more = append(s.more, appendText(nil, attribute))
			}
		}
		r.subjects = append(r.subjects, s)
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
	size := len(s.name) + maxIPText // more than an address has grown by
	for i, attribute := range s.per {
		v, ok := req.value(attribute)
		if !ok {
			return ring.Key{}, false
		}
		values[i] = v
		size += binary.MaxVarintLen64 + len(v)
	}
	for _, name := range s.more {
		size += len(name)
	}
	if size > smallName {
		return s.longKey(h, req.addr, values[:len(s.per)]), true
	}
	var buf [smallName]byte
	return h.Key(s.appendName(buf[:0], req.addr, values[:len(s.per)])), true
}

// longKey is apart so that only long names pay for the large buffer.
//
//go:noinline
func (s *subject) longKey(h ring.Hasher, addr netip.Addr, values []string) ring.Key {
	var buf [largeName]byte
	return h.Key(s.appendName(buf[:0], addr, values))
}

// appendName appends the name of the counter that values choose, in the set's
// order. addr is what the value of the attribute ip says, if that is an address.
func (s *subject) appendName(name []byte, addr netip.Addr, values []string) []byte {
	name = append(name, s.name...)
	for i, v := range values {
		if i > 0 {
			name = append(name, s.more[i-1]...)
		}
		if i == s.ip && addr.Is6() {
			name = appendIP(name, addr, s.rule.IPv6Prefix)
		} else {
			name = appendText(name, v)
		}
	}
	return name
}

// enforced says whether a denial by the counters that share key denies, for a
// percentage of them: those of the lowest shares, so that a higher percentage only
// adds some. The high half of Lo is even, and known to no caller.
func enforced(key ring.Key, percent int64) bool {
	share := key.Lo >> 32 * 100 >> 32
	return int64(share) < percent
}
