package shard

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unsafe"
)

const (
	pageSlots = 128 // what an arena hands out at once
	pageBytes = pageSlots * int(unsafe.Sizeof(slot{}))
)

type page [pageSlots]slot

// arena is the memory of all tables of a Shard, in pages of the size that most machines' have.
// It lies outside the heap: the garbage collector neither looks at it nor lets it
// double before it collects, and what is not needed any more goes back at once.
type arena struct {
	pages []page // as many as there may be; the kernel gives memory to those that are written to

	mu    sync.Mutex
	fresh int      // pages[fresh:] were never handed out; guarded by mu
	idle  []uint32 // handed out before, and still in memory; guarded by mu
	gone  []uint32 // handed out before, and read as zero since, as the kernel has them; guarded by mu
	kept  int      // of gone: those that the kernel could not be given; guarded by mu
	left  int      // pages that may still be promised; guarded by mu

	regions regions // guarded by mu
}

// newArena returns an arena that promises up to budget pages and has extra ones, for
// what tables need beyond what they were promised.
func newArena(budget, extra int) (*arena, error) {
	memory, err := reserve((budget + extra) * pageBytes)
	if err != nil {
		return nil, fmt.Errorf("shard: reserve %d bytes: %w", (budget+extra)*pageBytes, err)
	}
	a := &arena{pages: unsafe.Slice((*page)(unsafe.Pointer(unsafe.SliceData(memory))), budget+extra), left: budget}
	a.regions = newRegions(a.pages)
	runtime.AddCleanup(a, unreserve, memory)
	return a, nil
}

// promise reserves n pages of the budget, if so many are left.
func (a *arena) promise(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left < n {
		return false
	}
	a.left -= n
	return true
}

// release takes back the promise of n pages.
func (a *arena) release(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left += n
}

// take hands out an empty page. It is false if there is none.
func (a *arena) take() (uint32, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case len(a.idle) > 0:
		i := pop(&a.idle)
		a.pages[i] = page{}
		return i, true
	case len(a.gone) > 0:
		a.kept = min(a.kept, len(a.gone)-1)
		i := pop(&a.gone)
		a.regions.added(i)
		return i, true
	case a.fresh < len(a.pages):
		i := uint32(a.fresh)
		a.fresh++
		a.regions.added(i)
		return i, true
	}
	return 0, false
}

func pop(s *[]uint32) uint32 {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}

// give takes a page back.
func (a *arena) give(i uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.idle = append(a.idle, i)
}

const (
	giveBackPages = 64 // pages that go back to the kernel under one lock
	keepIdle      = 64 // pages that stay for what comes next
)

// trim gives a part of the pages back to the kernel, neighbours together, if more than a few
// are idle. It says how many, and whether there are more.
func (a *arena) trim() (n int, more bool) {
	some, more := a.untake()
	for rest := some; len(rest) > 0; {
		run := 1
		for run < len(rest) && rest[run] == rest[0]+uint32(run) {
			run++
		}
		pages := a.pages[rest[0]:][:run]
		given := forget(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(pages))), run*pageBytes))
		a.gave(rest[:run], given)
		rest = rest[run:]
	}
	return len(some), more
}

// untake returns some idle pages, in order, that are nobody's until gave.
func (a *arena) untake() (some []uint32, more bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := min(max(0, len(a.idle)-keepIdle), giveBackPages)
	left := len(a.idle) - n
	some = slices.Clone(a.idle[left:])
	slices.Sort(some)
	if a.idle = a.idle[:left]; cap(a.idle) > 64*keepIdle && left <= keepIdle {
		a.idle = slices.Clip(slices.Clone(a.idle)) // as long as it was when all were idle
	}
	return some, left > keepIdle
}

// gave says that pages of untake read as zero, and whether the kernel has them.
func (a *arena) gave(pages []uint32, given bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = append(a.gone, pages...)
	for _, p := range pages {
		a.regions.removed(p)
	}
	if !given {
		a.kept += len(pages)
	}
}

// bytes returns how much memory the pages take.
func (a *arena) bytes() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return (a.fresh - len(a.gone) + a.kept) * pageBytes
}
