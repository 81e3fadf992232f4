package peers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/store/memory"
	"golang.org/x/time/rate"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

const (
	keys   = 1 << 20
	limit  = 100 // of a key, per hour
	window = time.Hour
	every  = window / limit
)

// names are of 30 bytes.
var names = sync.OnceValue(func() []string {
	all := make([]string, keys)
	for i := range all {
		all[i] = fmt.Sprintf("user:%025d", i*2654435761)
	}
	return all
})

// patterns say which key comes next. The hot one is over its limit soon.
var patterns = []struct {
	name  string
	asked func() []string
}{
	{"uniform", asked(func(r *rand.Rand) func() uint64 { return func() uint64 { return r.Uint64N(keys) } })},
	{"zipf", asked(func(r *rand.Rand) func() uint64 { return rand.NewZipf(r, 1.1, 1, keys-1).Uint64 })},
	{"hot", asked(func(*rand.Rand) func() uint64 { return func() uint64 { return 0 } })},
}

// asked returns a million names in a pattern, the same in every run. They lie in memory in
// the order in which they are asked for: the name of a request that has come in is in the
// processor's cache.
func asked(draw func(r *rand.Rand) func() uint64) func() []string {
	return sync.OnceValue(func() []string {
		next := draw(rand.New(rand.NewPCG(1, 2)))
		var text strings.Builder
		for range keys {
			text.WriteString(names()[next()])
		}
		all := make([]string, keys)
		for i := range all {
			size := len(names()[0])
			all[i] = text.String()[i*size:][:size]
		}
		return all
	})
}

// caller takes a token of each of the names, which are as many as the library's batch.
type caller func(names []string) error

// library is a limiter. Each goroutine makes a caller of its own.
type library struct {
	name  string
	batch int
	open  func(b *testing.B) (newCaller func() caller)
}

var libraries = []library{
	{"weir", 1, openWeir},
	{"weir-batch100", 100, openWeir},
	{"x-time-rate", 1, openTimeRate},
	{"go-limiter", 1, openGoLimiter},
	{"throttled", 1, openThrottled},
	{"ulule", 1, openUlule},
}

func openWeir(b *testing.B) func() caller {
	s, err := shard.New(shard.Config{
		Partitions: uint32(ring.DefaultParams.Partitions), MaxBytes: 256 << 20, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		b.Fatal(err)
	}
	h := ring.NewHasher([ring.SecretSize]byte{1})
	l := algorithms.Limit{Algorithm: algorithms.GCRA, Limit: limit, Window: int64(window)}
	return func() caller {
		var groups []shard.Group
		var name []byte
		return func(names []string) error {
			for len(groups) < len(names) {
				groups = append(groups, shard.Group{Takes: []shard.Take{{Limit: l, Cost: 1}}})
			}
			for i := range names {
				name = append(name[:0], names[i]...)
				groups[i].Takes[0].Key = h.Key(name)
			}
			s.Decide(groups[:len(names)])
			return nil
		}
	}
}

// openTimeRate is how x/time/rate is used for many keys as a rule.
func openTimeRate(*testing.B) func() caller {
	var mu sync.Mutex
	limiters := make(map[string]*rate.Limiter)
	return one(func(name string) error {
		mu.Lock()
		l := limiters[name]
		if l == nil {
			l = rate.NewLimiter(rate.Every(every), limit)
			limiters[name] = l
		}
		mu.Unlock()
		l.Allow()
		return nil
	})
}

func openGoLimiter(b *testing.B) func() caller {
	s, err := memorystore.New(&memorystore.Config{Tokens: limit, Interval: window})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	return one(func(name string) error {
		_, _, _, _, err := s.Take(context.Background(), name)
		return err
	})
}

func openThrottled(b *testing.B) func() caller {
	s, err := memstore.NewCtx(0) // a map
	if err != nil {
		b.Fatal(err)
	}
	l, err := throttled.NewGCRARateLimiterCtx(s, throttled.RateQuota{MaxRate: throttled.PerHour(limit), MaxBurst: limit - 1})
	if err != nil {
		b.Fatal(err)
	}
	return one(func(name string) error {
		_, _, err := l.RateLimitCtx(context.Background(), name, 1)
		return err
	})
}

func openUlule(*testing.B) func() caller {
	l := limiter.New(memory.NewStore(), limiter.Rate{Period: window, Limit: limit})
	return one(func(name string) error {
		_, err := l.Get(context.Background(), name)
		return err
	})
}

// one makes callers of a library that has no batches and keeps nothing per caller.
func one(take func(name string) error) func() caller {
	return func() caller { return func(names []string) error { return take(names[0]) } }
}

// BenchmarkLibraries takes one token of one of a million keys: for how long, and how much
// memory the library has taken per key. A batch counts as its checks.
func BenchmarkLibraries(b *testing.B) {
	for _, l := range libraries {
		b.Run(l.name, func(b *testing.B) {
			before := resident(b)
			newCaller := l.open(b)
			fill(b, newCaller())
			perKey := float64(resident(b)-before) / keys
			for _, p := range patterns {
				names := p.asked()
				b.Run(p.name, func(b *testing.B) {
					b.ReportAllocs()
					b.ReportMetric(perKey, "rss-B/key")
					b.RunParallel(func(pb *testing.PB) { ask(b, pb, newCaller(), names, l.batch) })
				})
			}
			runtime.KeepAlive(newCaller)
		})
	}
}

// fill makes every key's counter. What a library keeps of a name is its own, as it would
// be of one that came in a request.
func fill(b *testing.B, call caller) {
	for _, name := range names() {
		if err := call([]string{strings.Clone(name)}); err != nil {
			b.Fatal(err)
		}
	}
}

// ask takes a token of the next key each time, and calls whenever there is a batch of them.
func ask(b *testing.B, pb *testing.PB, call caller, names []string, batch int) {
	buf := make([]string, 0, batch)
	for i := rand.IntN(len(names)); pb.Next(); i++ {
		buf = append(buf, names[i%len(names)])
		if len(buf) < batch {
			continue
		}
		if err := call(buf); err != nil {
			b.Error(err)
			return
		}
		buf = buf[:0]
	}
}

// resident is what this process has in memory, without garbage.
func resident(b *testing.B) int64 {
	names() // which every library shares
	debug.FreeOSMemory()
	p, err := procfs.NewProc(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return int64(stat.ResidentMemory())
}
