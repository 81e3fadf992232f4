package ring

import (
	"testing"

	"github.com/dchest/siphash"
	"pgregory.net/rapid"
)

// The twin says how many rounds there are: with those of SipHash-2-4 it is compared with a
// library, with ours with what runs.
func TestSipHash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k0, k1 := rapid.Uint64().Draw(t, "k0"), rapid.Uint64().Draw(t, "k1")
		b := rapid.SliceOfN(rapid.Byte(), 0, 70).Draw(t, "bytes")
		lo, hi := sipHashTwin(2, 4, k0, k1, b)
		if wantLo, wantHi := siphash.Hash128(k0, k1, b); lo != wantLo || hi != wantHi {
			t.Fatalf("the twin is wrong: %x %x, want %x %x", lo, hi, wantLo, wantHi)
		}
		wantLo, wantHi := sipHashTwin(1, 3, k0, k1, b)
		if lo, hi := siphash13(k0, k1, b); lo != wantLo || hi != wantHi {
			t.Fatalf("%x %x, want %x %x", lo, hi, wantLo, wantHi)
		}
	})
}

// sipHashTwin is the paper's description, word by word.
func sipHashTwin(c, d int, k0, k1 uint64, b []byte) (lo, hi uint64) {
	v := [4]uint64{0x736f6d6570736575 ^ k0, 0x646f72616e646f6d ^ k1, 0x6c7967656e657261 ^ k0, 0x7465646279746573 ^ k1}
	v[1] ^= 0xee
	rounds := func(n int) {
		for range n {
			v[0], v[1], v[2], v[3] = sipRound(v[0], v[1], v[2], v[3])
		}
	}
	padded := append([]byte{}, b...)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(b)))
	for ; len(padded) > 0; padded = padded[8:] {
		var m uint64
		for i := range 8 {
			m |= uint64(padded[i]) << (8 * i)
		}
		v[3] ^= m
		rounds(c)
		v[0] ^= m
	}
	v[2] ^= 0xee
	rounds(d)
	lo = v[0] ^ v[1] ^ v[2] ^ v[3]
	v[1] ^= 0xdd
	rounds(d)
	return lo, v[0] ^ v[1] ^ v[2] ^ v[3]
}
