package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// BenchmarkReadFrame reads a frame of 32 requests of a take each, or of the answers to them, as nodes do with batches.
func BenchmarkReadFrame(b *testing.B) {
	const items = 32
	groups := groupsOf(items, 1)
	for _, g := range groups {
		g.Takes[0].Limit, g.Takes[0].Cost = algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1e9, Window: int64(24 * time.Hour)}, 1
	}
	b.Run("requests", func(b *testing.B) {
		frame := []byte{connVersion}
		for i := range groups {
			frame = appendRequest(frame, opDecide, uint32(i), groups[i])
		}
		var read batch
		for b.Loop() {
			if err := read.read(frame); err != nil || len(read.requests) != items {
				b.Fatal(err, len(read.requests))
			}
		}
	})
	b.Run("answers", func(b *testing.B) {
		frame := []byte{connVersion}
		for i := range groups {
			g := groups[i]
			g.Allowed = true
			for j := range g.Takes {
				t := &g.Takes[j]
				t.Source, t.Decision.Allowed, t.Decision.Remaining = shard.Owner, true, 1000
				t.Decision.At, t.Decision.ResetAt = 1<<60, 1<<60+1<<45
			}
			frame = appendAnswer(frame, uint32(i), g, false)
		}
		for b.Loop() {
			n := 0
			for r := openFrame(frame); r.more(); n++ {
				h, g := r.answerHead(), groups[n]
				for i := range g.Takes {
					g.Takes[i].Contended = r.decision(&g.Takes[i].Decision)
					g.Takes[i].Source = h.source
				}
			}
			if n != items {
				b.Fatal(n)
			}
		}
	})
}
