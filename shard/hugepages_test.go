package shard

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// TestRegions holds what an arena knows of its regions against a count of its pages.
func TestRegions(t *testing.T) {
	const pages = 4 * hugePages
	rapid.Check(t, func(rt *rapid.T) {
		a, err := newArena(pages, 0)
		if err != nil {
			rt.Fatal(err)
		}
		ours := make(map[uint32]bool) // pages that are handed out
		rt.Repeat(map[string]func(*rapid.T){
			"take": func(rt *rapid.T) {
				for range rapid.IntRange(1, pages).Draw(rt, "n") {
					if i, ok := a.take(); ok {
						ours[i] = true
					}
				}
			},
			"give": func(rt *rapid.T) {
				from := rapid.IntRange(0, pages-1).Draw(rt, "from")
				for i := from; i < min(pages, from+rapid.IntRange(1, pages).Draw(rt, "n")); i++ {
					if ours[uint32(i)] {
						delete(ours, uint32(i))
						a.give(uint32(i))
					}
				}
			},
			"trim":         func(*rapid.T) { a.trim() },
			"lay together": func(*rapid.T) { a.collapseRegions() },
			"retry":        func(*rapid.T) { a.retry() },
			"": func(rt *rapid.T) {
				used := make([]int, len(a.regions.all))
				gone := make(map[uint32]bool)
				for _, i := range a.returned {
					gone[i] = true
				}
				for i := range a.fresh {
					if !gone[uint32(i)] {
						used[a.regions.of(uint32(i))]++
					}
				}
				for region, n := range used {
					if r := a.regions.all[region]; n != r.used {
						rt.Fatalf("region %d: %d pages used, it says %+v", region, n, r)
					}
				}
				queued := 0
				for _, i := range slices.Concat(a.regions.ready, a.regions.later) {
					if queued++; !a.regions.all[i].ready {
						rt.Fatalf("region %d is not marked", i)
					}
				}
				if queued > len(used) {
					rt.Fatalf("%d of %d regions wait", queued, len(used))
				}
			},
		})
	})
}

// TestHugePages reads the kernel's figures of an arena: regions in use as a whole become huge pages, keep
// their contents, and return in parts.
func TestHugePages(t *testing.T) {
	const pages = 8 * hugePages
	a, err := newArena(pages, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer runtime.KeepAlive(a)
	for {
		i, ok := a.take()
		if !ok {
			break
		}
		a.pages[i][7].hi = uint64(i) + 1
	}
	before := hugeBytesNow(t, a)
	for try := 0; try < 100 && hugeBytesNow(t, a) == before; try++ {
		a.collapseRegions()
		a.retry()
	}
	if a.regions.never {
		t.Skip("this kernel has no huge pages, or does not lay pages together (before Linux 6.1)")
	}
	huge := hugeBytesNow(t, a) - before
	for i := range a.pages {
		if a.pages[i][7].hi != uint64(i)+1 {
			t.Fatalf("page %d has %d", i, a.pages[i][7].hi)
		}
	}
	for i := range uint32(pages / 2) {
		a.give(i)
	}
	for more := true; more; {
		_, more = a.trim()
	}
	if n := present(t, a); n != pages/2+keepIdle {
		t.Errorf("%d of %d pages are in memory after a half was given back", n, pages)
	}
	for range pages / 2 {
		i, ok := a.take()
		if !ok || a.pages[i] != (page{}) {
			t.Fatalf("page %d is not empty", i)
		}
		a.pages[i][0].lo = 1
	}
	if !a.regions.all[a.regions.of(0)+1].ready {
		t.Error("what is used again as a whole is not laid together")
	}
	if huge == 0 {
		t.Skip("the kernel had a page of every huge one in hand all the time; all else was tested")
	}
}

// hugeBytesNow returns how much of all that is mapped where the arena is lies in huge pages, in bytes.
func hugeBytesNow(t *testing.T, a *arena) (n int) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip(err) // not on Linux
	}
	first := uint64(a.address())
	end := first + uint64(len(a.pages)*pageBytes)
	inside := false
	for line := range bytes.Lines(text) {
		var from, to uint64
		var kb int
		if _, err := fmt.Sscanf(string(line), "%x-%x ", &from, &to); err == nil {
			inside = from < end && to > first // the kernel may have joined neighbours
		} else if _, err := fmt.Sscanf(string(line), "AnonHugePages: %d kB", &kb); err == nil && inside {
			n += kb << 10
		}
	}
	return n
}

// present returns how many of the arena's pages are in memory.
func present(t *testing.T, a *arena) (n int) {
	maps, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Skip(err) // not on Linux
	}
	defer maps.Close()
	entries := make([]byte, 8*len(a.pages))
	if _, err := maps.ReadAt(entries, int64(a.address())/int64(pageBytes)*8); err != nil {
		t.Fatal(err)
	}
	for i := range a.pages {
		n += int(entries[8*i+7] >> 7)
	}
	return n
}

func (a *arena) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(a.pages))) }
