package node

import (
	"runtime"
	"testing"
)

// The ballast is there while the rest of the heap is small, and comes again when it is. A heap between both bounds leaves it as it is.
func TestBallastFitsTheHeap(t *testing.T) {
	var b ballast
	b.begin()
	const mib = 1 << 20
	for _, step := range []struct {
		rest uint64 // MiB
		want int    // MiB of ballast
	}{{8, 32}, {32, 32}, {33, 0}, {100, 0}, {17, 0}, {16, 32}, {17, 32}} {
		b.fit(step.rest*mib + uint64(len(b.memory)))
		if got := len(b.memory) / mib; got != step.want {
			t.Errorf("%d MiB for %d MiB of other heap, want %d", got, step.rest, step.want)
		}
	}
	b.begin()
	b.end()
	if len(b.memory) == 0 {
		t.Error("there is none for the node that still runs")
	}
	b.end()
	if b.fit(0); len(b.memory) > 0 {
		t.Error("there is one for no node")
	}
}

// A collection has the ballast fit the heap.
func TestCollectionsFitTheBallast(t *testing.T) {
	var b ballast
	b.begin()
	defer b.end()
	large := make([]byte, largeHeap+1)
	held := true
	for held { // until the test's time is over
		runtime.GC()
		b.mu.Lock()
		held = b.memory != nil
		b.mu.Unlock()
	}
	runtime.KeepAlive(large)
}
