// Package counter names counters: by domain, rule, and the attributes whose values choose one.
package counter

import (
	"encoding/binary"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Attribute is one named value of a request.
type Attribute struct{ Key, Value string }

// SmallName is the size of the buffer for most names, on the stack.
const SmallName = 256

// A counter's name is the sequence domain, rule id, then attribute and value for
// each of one set of Per in order, every one behind its length. Such a sequence can be read
// back in one way only, so no two counters share a name. Nodes of one cluster
// must agree on it: never change it, nor Salt.

// AppendText appends the encoding of one text of a name.
func AppendText[T string | []byte](name []byte, text T) []byte {
	name = binary.AppendUvarint(name, uint64(len(text)))
	return append(name, text...)
}

// Salt tells the counters of one rule and subject apart. It is public: the key
// that it is mixed into is not.
func Salt(l algorithms.Limit) uint64 {
	b := binary.LittleEndian.AppendUint64(nil, uint64(l.Algorithm))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Window))
	if l.Calendar != nil {
		b = append(b, l.Calendar.String()...) // longer than all without
	}
	return ring.Hasher{}.Key(b).Lo
}
