package shard

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

const benchKeys = 1 << 20

// patterns say which of benchKeys names come in which order.
var patterns = []struct {
	name string
	draw func(r *rand.Rand) func() uint64
}{
	{"uniform", func(r *rand.Rand) func() uint64 { return func() uint64 { return r.Uint64N(benchKeys) } }},
	{"zipf", func(r *rand.Rand) func() uint64 { return rand.NewZipf(r, 1.1, 1, benchKeys-1).Uint64 }},
	{"hot", func(*rand.Rand) func() uint64 { return func() uint64 { return 0 } }},
}

// order returns a million names' indices in a pattern, the same in every run.
func order(draw func(r *rand.Rand) func() uint64) []uint32 {
	next := draw(rand.New(rand.NewPCG(1, 2)))
	is := make([]uint32, benchKeys)
	for i := range is {
		is[i] = uint32(next())
	}
	return is
}

// BenchmarkCheck takes one token of one of a million names of 30 bytes: hash, clock,
// lock, table and step. Beside it stands the plainest limiter that one could write,
// in the same run: 256 maps behind mutexes, from the name to when GCRA lets the next
// one through.
func BenchmarkCheck(b *testing.B) {
	names := make([]string, benchKeys)
	encoded := make([][]byte, benchKeys)
	for i := range names {
		names[i] = fmt.Sprintf("user:%025d", i*2654435761)
		encoded[i] = []byte(names[i])
	}
	limit := algorithms.Limit{Algorithm: algorithms.GCRA, Limit: 100, Window: int64(time.Hour)}
	h := ring.NewHasher([ring.SecretSize]byte{1})
	s, m := newShard(b, 2*benchKeys), newPlain(int64(time.Hour)/100, 100)
	for i, name := range encoded {
		ask(s, h.Key(name), limit, 1)
		m.allow(names[i])
	}
	for _, p := range patterns {
		is := order(p.draw)
		b.Run("weir/"+p.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				groups := []Group{{Takes: []Take{{Limit: limit, Cost: 1}}}}
				for i := rand.IntN(len(is)); pb.Next(); i++ {
					groups[0].Takes[0].Key = h.Key(encoded[is[i%len(is)]])
					s.Decide(groups)
				}
			})
		})
		b.Run("maps/"+p.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(len(is)); pb.Next(); i++ {
					m.allow(names[is[i%len(is)]])
				}
			})
		})
	}
}

// plain is the reference: when the next one is let through, by name.
type plain struct {
	every, burst int64 // nanoseconds, tokens
	parts        [256]struct {
		mu   sync.Mutex
		next map[string]int64
		_    [64 - 16]byte
	}
}

func newPlain(every, burst int64) *plain {
	m := &plain{every: every, burst: burst}
	for i := range m.parts {
		m.parts[i].next = make(map[string]int64)
	}
	return m
}

func (m *plain) allow(name string) bool {
	hash := uint32(2166136261) // FNV-1a
	for _, c := range []byte(name) {
		hash = (hash ^ uint32(c)) * 16777619
	}
	p := &m.parts[hash%256]
	now := time.Now().UnixNano()
	p.mu.Lock()
	defer p.mu.Unlock()
	at := max(p.next[name], now)
	if at+m.every-now > m.every*m.burst {
		return false
	}
	p.next[name] = at + m.every
	return true
}
