package rules

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules/internal/counter"
)

// prepare computes what Match needs of r beyond what the file says. kinds are those
// of the rules so far, by their encodings.
func (r *Rule) prepare(order int, kinds map[string]*kind) {
	r.order = order
	var salts []uint64
	var above []int64
	for _, l := range r.Limits {
		salts = append(salts, counter.Salt(l))
		if r.Mode.Kind != Hard {
			limit, more := raise(l, r.Mode.Percent)
			r.raised, above = append(r.raised, limit), append(above, more)
		}
	}
	sets := r.Per
	if len(sets) == 0 {
		sets = [][]string{nil}
	}
	for i, set := range sets {
		name := counter.AppendText(counter.AppendText(nil, r.Domain), r.ID)
		if len(set) > 0 {
			name = counter.AppendText(name, set[0])
		}
		s := subject{rule: r, rank: uint32(order<<8 + i), kind: known(kinds, r.kind(set, salts, above))}
		r.subjects = append(r.subjects, namedSubject{s, string(name)})
	}
}

// kind returns the kind of r's subject of a set.
func (r *Rule) kind(set []string, salts []uint64, above []int64) *kind {
	k := &kind{
		per: set, ip: slices.Index(set, IPAttribute), bits: r.IPv6Prefix, salts: salts,
		plain:     !r.Unlimited && r.Mode.Kind != Soft && r.Enforce == 100,
		unlimited: r.Unlimited, blocks: r.blocks(), enforce: r.Enforce,
		mode: r.Mode.Kind, above: above, replaces: r.replacedRules, parent: r.parent,
	}
	for _, attribute := range set[min(1, len(set)):] {
		k.more = append(k.more, string(counter.AppendText(nil, attribute)))
	}
	return k
}

// known returns the one of kinds that is the same as k, which is k if there was none.
func known(kinds map[string]*kind, k *kind) *kind {
	encoding := fmt.Appendf(nil, "%q %d %d %t %d %d %d %p", k.per, k.bits, k.salts, k.blocks, k.enforce, k.mode, k.above, k.parent)
	for _, r := range k.replaces {
		encoding = fmt.Appendf(encoding, " %p", r)
	}
	if other := kinds[string(encoding)]; other != nil {
		return other
	}
	kinds[string(encoding)] = k
	return k
}

// largeName is the size of the buffer for names that are longer than counter.SmallName: all fit it that
// bounds and callers allow. Longer ones move to the heap.
const largeName = 6144

// key returns the common part of the keys of the counters for req of a subject, whose
// name begins with prefix. It is false if req lacks an attribute of the set.
func (k *kind) key(h ring.Hasher, prefix string, req *Request) (ring.Key, bool) {
	var buf [counter.SmallName]byte
	switch name, result := k.appendName(buf[:0], prefix, req, counter.SmallName); result {
	case named:
		return h.Key(name), true
	case tooLong:
		return k.longKey(h, prefix, req)
	case lacking:
	}
	return ring.Key{}, false
}

// longKey is apart so that only long names pay for the large buffer.
//
//go:noinline
func (k *kind) longKey(h ring.Hasher, prefix string, req *Request) (ring.Key, bool) {
	var buf [largeName]byte
	name, result := k.appendName(buf[:0], prefix, req, math.MaxInt)
	return h.Key(name), result == named
}

// naming is what becomes of a name.
type naming int

const (
	named naming = iota
	lacking
	tooLong
)

// appendName appends the name of the counter that req chooses, unless it lacks an
// attribute of the set or most bytes may be too few.
func (k *kind) appendName(name []byte, prefix string, req *Request, most int) ([]byte, naming) {
	if len(prefix) > most {
		return nil, tooLong
	}
	name = append(name, prefix...)
	for i, attribute := range k.per {
		value, ok := req.value(attribute)
		if !ok {
			return nil, lacking
		}
		if i > 0 {
			if len(k.more[i-1]) > most-len(name) {
				return nil, tooLong
			}
			name = append(name, k.more[i-1]...)
		}
		if max(len(value), maxIPText)+binary.MaxVarintLen64 > most-len(name) {
			return nil, tooLong
		}
		if i == k.ip && req.addr.Is6() {
			name = appendIP(name, req.addr, k.bits)
		} else {
			name = counter.AppendText(name, value)
		}
	}
	return name, named
}
