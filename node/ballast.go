package node

import (
	"runtime"
	"runtime/metrics"
	"sync"
)

// ballast is memory that is allocated and never touched, so that it takes none: it only makes the garbage
// collector, which runs whenever the heap has doubled, wait for that much more garbage. A node's heap
// without its counters is so small that it would collect 20 times a second. If the rest of the heap is
// large, the collector waits long enough without it, and the ballast would only add garbage (ADR 5).
type ballast struct {
	mu      sync.Mutex
	memory  []byte // nil while no node runs, or the rest of the heap is large
	nodes   int    // that run
	watched bool   // the next collection calls fit
}

const (
	ballastBytes = 32 << 20
	largeHeap    = ballastBytes     // of the rest, beyond which there is no ballast
	smallHeap    = ballastBytes / 2 // up to which there is one again
)

// processBallast is that of all nodes of this process, which have one heap.
var processBallast ballast

// begin has a node use the ballast until end.
func (b *ballast) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes++
	if b.nodes == 1 {
		b.memory = make([]byte, ballastBytes)
		if !b.watched {
			b.watch()
		}
	}
}

func (b *ballast) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes--
	if b.nodes == 0 {
		b.memory = nil
	}
}

// watch has the ballast fit the heap after the next collection. Its caller holds b.mu.
func (b *ballast) watch() {
	b.watched = true
	const alone = 16 // bytes; Go may put less in one place with others, and keeps all of them for as long as any is used
	runtime.AddCleanup(new([alone]byte), func(b *ballast) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		b.fit(live[0].Value.Uint64())
	}, b)
}

// fit drops the ballast or makes it again for a heap of live bytes. It watches on while a node runs.
func (b *ballast) fit(live uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watched = false; b.nodes == 0 {
		return
	}
	switch rest := int64(live) - int64(len(b.memory)); { //nolint:gosec // a heap is shorter
	case rest > largeHeap:
		b.memory = nil
	case rest <= smallHeap && b.memory == nil:
		b.memory = make([]byte, ballastBytes)
	}
	b.watch()
}
