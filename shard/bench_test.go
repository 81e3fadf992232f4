package shard

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

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

func benchName(i uint64) string { return fmt.Sprintf("user:%025d", i*2654435761) }

// asked returns a million names in a pattern, the same in every run. They lie in memory in the order of
// their use: the name of a request just received is in the processor's cache.
func asked(draw func(r *rand.Rand) func() uint64) []string {
	next := draw(rand.New(rand.NewPCG(1, 2)))
	var all strings.Builder
	for range benchKeys {
		all.WriteString(benchName(next()))
	}
	names := make([]string, benchKeys)
	for i := range names {
		size := len(benchName(0))
		names[i] = all.String()[i*size:][:size]
	}
	return names
}

// BenchmarkCheck takes one token of one of a million names of 30 bytes: hash, clock, lock, table and step;
// alone, and 100 names at once, which read the clock once. Its baseline, in the same run, is the plainest
// limiter: 256 maps behind mutexes, from the name to the instant at which GCRA allows the next take.
func BenchmarkCheck(b *testing.B) {
	limit := algorithms.Limit{Algorithm: algorithms.GCRA, Limit: 100, Window: int64(time.Hour)}
	h := ring.NewHasher([ring.SecretSize]byte{1})
	key := func(name string) ring.Key {
		return h.Key(unsafe.Slice(unsafe.StringData(name), len(name))) // a handler has bytes
	}
	s, m := newShard(b), newPlain(int64(time.Hour)/100, 100)
	for i := range uint64(benchKeys) {
		ask(s, key(benchName(i)), limit, 1)
		m.allow(benchName(i))
	}
	runtime.GC()
	for _, p := range patterns {
		names := asked(p.draw)
		check := func(batch int) func(b *testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					groups := make([]Group, batch)
					for i := range groups {
						groups[i].Takes = []Take{{Limit: limit, Cost: 1}}
					}
					i := rand.Uint64()
					for more := true; more; {
						n := 0
						for ; n < batch && more; n++ {
							if more = pb.Next(); more {
								groups[n].Takes[0].Key = key(names[i%benchKeys])
								i++
							}
						}
						s.Decide(groups[:n])
					}
				})
			}
		}
		b.Run("weir/"+p.name, check(1))
		b.Run("weir-100/"+p.name, check(100))
		b.Run("maps/"+p.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.Uint64(); pb.Next(); i++ {
					m.allow(names[i%benchKeys])
				}
			})
		})
	}
}

// BenchmarkFollowed takes one token of one of 100,000 keys: without a follower, and with a standby that is
// given the changes every 10,000 takes. It also reports the cost of each such change.
func BenchmarkFollowed(b *testing.B) {
	const keys, every = 100_000, 10_000
	limit := algorithms.Limit{Algorithm: algorithms.GCRA, Limit: 100, Window: int64(time.Hour)}
	for _, followed := range []bool{false, true} {
		b.Run(fmt.Sprintf("followed=%t", followed), func(b *testing.B) {
			s := newShardOf(b, Config{Partitions: 61, MaxBytes: 1 << 30})
			s.OnUrgent(func(uint32) {})
			var buf []byte
			give := func() (n int) {
				for p := range uint32(61) {
					for more := followed; more; n += len(buf) {
						buf, more = s.Changes(p, ToStandby, buf[:0], 1<<16)
					}
				}
				return n
			}
			groups := []Group{{Takes: []Take{{Limit: limit, Cost: 1}}}}
			take := func(i int) {
				groups[0].Takes[0].Key = ring.Key{Hi: uint64(i%keys) * 0x9e3779b97f4a7c15, Lo: uint64(i % keys)}
				s.Decide(groups)
			}
			for i := range keys {
				take(i)
			}
			for p := range uint32(61) {
				if followed {
					s.Follow(p, ToStandby)
				}
			}
			give()
			b.ReportAllocs()
			sent, i := 0, 0
			for b.Loop() {
				if take(i * 7919); i%every == 0 {
					sent += give()
				}
				i++
			}
			b.ReportMetric(float64(sent)/float64(i), "sent-B/op")
		})
	}
}

// BenchmarkCopies measures a copy of counters that are all used equally often: each take, in batches, with
// a standby; the records of the changes; and their application by the standby.
func BenchmarkCopies(b *testing.B) {
	const keys, parts, batch, every = 300_000, 1021, 100, 9000
	limit := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1e9, Window: int64(24 * time.Hour)}
	s, to := newShardOf(b, Config{Partitions: parts, MaxBytes: 1 << 30}), newShardOf(b, Config{Partitions: parts, MaxBytes: 1 << 30})
	s.OnUrgent(func(uint32) {})
	var deciding, changing, applying time.Duration
	bufs := make([][]byte, parts)
	give := func() {
		at := time.Now()
		for p := range uint32(parts) {
			bufs[p] = bufs[p][:0]
			for more := true; more; {
				bufs[p], more = s.Changes(p, ToStandby, bufs[p], 1<<16)
			}
		}
		mid := time.Now()
		for p := range uint32(parts) {
			if err := to.Apply(p, bufs[p]); err != nil {
				b.Fatal(err)
			}
		}
		changing, applying = changing+mid.Sub(at), applying+time.Since(mid)
	}
	groups := make([]Group, batch)
	for i := range groups {
		groups[i].Takes = []Take{{Limit: limit, Cost: 1}}
	}
	seed := uint64(1)
	take := func(n int) {
		at := time.Now()
		for range n / batch {
			for j := range groups {
				seed = seed*6364136223846793005 + 1442695040888963407
				k := (seed >> 33) % keys
				groups[j].Takes[0].Key = ring.Key{Hi: k * 0x9e3779b97f4a7c15, Lo: k * 0xd6e8feb86659fd93}
			}
			s.Decide(groups)
		}
		deciding += time.Since(at)
	}
	for p := range uint32(parts) {
		to.Seal(p)
		s.Follow(p, ToStandby)
	}
	for range 10 * keys / every {
		take(every)
		give()
	}
	deciding, changing, applying = 0, 0, 0
	n := 0
	for b.Loop() {
		take(every)
		give()
		n += every
	}
	b.ReportMetric(float64(deciding)/float64(n), "take-ns")
	b.ReportMetric(float64(changing)/float64(n), "change-ns")
	b.ReportMetric(float64(applying)/float64(n), "apply-ns")
	b.ReportMetric(0, "ns/op")
}

// plain is the baseline: the instant of the next allowed take, by name.
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
