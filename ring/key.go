package ring

// Key identifies one counter everywhere: in tables, on the wire and in replicas.
// Nothing stores the text that it was made from.
//
// Lo places the counter on the ring; Hi tells the counters of one place apart.
// Two counters of one rule and one subject share Lo, so that they live in one
// partition and are decided together (ADR 0001).
type Key struct{ Hi, Lo uint64 }

// Hasher makes Keys with a keyed hash, SipHash-1-3-128: callers who choose identifiers cannot choose the
// node or the slot of a counter. The zero value works, with an all-zero secret.
type Hasher struct{ k0, k1 uint64 }

// SecretSize is the length of the cluster's secret in bytes.
const SecretSize = 16

// NewHasher returns the Hasher of a cluster's secret.
func NewHasher(secret [SecretSize]byte) Hasher {
	le := func(b []byte) (v uint64) {
		for i := range 8 {
			v |= uint64(b[i]) << (8 * i)
		}
		return v
	}
	return Hasher{le(secret[:8]), le(secret[8:])}
}

// Key hashes the encoded name of a counter.
func (h Hasher) Key(name []byte) Key {
	lo, hi := siphash13(h.k0, h.k1, name)
	return Key{Hi: hi, Lo: lo}
}

// With returns the key of another counter in the same place as k. Salts of one rule's limits must differ.
func (k Key) With(salt uint64) Key { return Key{Hi: k.Hi ^ salt, Lo: k.Lo} }

// Partition returns the partition of k among n, which must be far below 2^32. It scales the low half of Lo,
// which takes a multiplication instead of a division. The high half stays independent of the partition:
// slots of tables keep some of its bits, and rollout percentages go by it.
func (k Key) Partition(n uint32) uint32 { return uint32(uint64(uint32(k.Lo)) * uint64(n) >> 32) }
