package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
)

// The distributions: how often each key is drawn, and in which order.
const (
	Uniform    = "uniform"    // each as often
	Zipf       = "zipf"       // key k in proportion to 1/(k+1)^1.1
	Hot        = "hot"        // key 0 in nine of ten draws, in the tenth any
	Sequential = "sequential" // one after the other, each caller from its own place
)

// Distributions returns all distributions.
func Distributions() []string { return []string{Uniform, Zipf, Hot, Sequential} }

// seen notes which keys were drawn. It is safe for concurrent use, and nil notes nothing.
type seen struct {
	bits []atomic.Uint64
	keys atomic.Int64
}

func newSeen(n uint64) *seen { return &seen{bits: make([]atomic.Uint64, (n+63)/64)} }

func (s *seen) add(key uint64) {
	if s == nil {
		return
	}
	bits, bit := &s.bits[key/64], uint64(1)<<(key%64)
	if bits.Load()&bit == 0 && bits.Or(bit)&bit == 0 {
		s.keys.Add(1)
	}
}

const (
	zipfExponent = 1.1
	hotOf        = 10 // one draw of so many goes to any key
	// tableSize is how many draws of a distribution are made beforehand where a draw takes
	// about as long as a check. They are used in turn.
	tableSize = 1 << 20
)

// Keys draws numbers of keys, from 0 to the number of keys - 1. It is immutable.
type Keys struct {
	distribution string
	n            uint64
	table        []uint32 // of Zipf
}

// NewKeys returns n keys, 1 to MaxKeys, that are drawn by the distribution.
func NewKeys(distribution string, n int64) (*Keys, error) {
	if n < 1 || n > MaxKeys {
		return nil, fmt.Errorf("keys: %d is not between 1 and %d", n, MaxKeys)
	}
	if !slices.Contains(Distributions(), distribution) {
		return nil, fmt.Errorf("distribution: %q is not one of %s", distribution, strings.Join(Distributions(), ", "))
	}
	k := &Keys{distribution: distribution, n: uint64(n)}
	if distribution == Zipf {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), zipfExponent, 1, k.n-1)
		k.table = make([]uint32, tableSize)
		for i := range k.table {
			k.table[i] = uint32(zipf.Uint64())
		}
	}
	return k, nil
}

// Draw returns what draws keys for one of so many callers: its own, for it alone, and
// the same in every run.
func (k *Keys) Draw(caller, callers int) func() uint64 {
	r := rand.New(rand.NewPCG(uint64(caller), 3))
	switch k.distribution {
	case Zipf:
		i := r.IntN(len(k.table))
		return func() uint64 {
			i = (i + 1) % len(k.table)
			return uint64(k.table[i])
		}
	case Hot:
		return func() uint64 {
			if r.Uint64N(hotOf) != 0 {
				return 0
			}
			return r.Uint64N(k.n)
		}
	case Sequential:
		next := k.n * uint64(caller) / uint64(callers)
		return func() uint64 {
			key := next
			next = (next + 1) % k.n
			return key
		}
	}
	return func() uint64 { return r.Uint64N(k.n) }
}
