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

// arena is the memory of all tables of a Shard, in pages of the size that most machines use. It lies
// outside the heap: the garbage collector neither scans it nor doubles the heap because of it, and unused
// memory returns to the kernel at once.
type arena struct {
	pages []page // the whole budget; the kernel backs a page when it is first written to

	mu       sync.Mutex
	fresh    int      // pages[fresh:] were never handed out; guarded by mu
	idle     []uint32 // handed out before, and still in memory; guarded by mu
	returned []uint32 // handed out before, and read as zero since, as the kernel has them; guarded by mu
	kept     int      // of returned: pages that the kernel did not take; guarded by mu
	left     int      // pages that may still be reserved; guarded by mu

	regions regions // guarded by mu
}

// newArena returns an arena in which budget pages can be reserved. extra pages are for what tables need
// beyond their reservations.
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

// reservePages reserves n pages of the budget. It returns false if fewer are left.
func (a *arena) reservePages(n int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left < n {
		return false
	}
	a.left -= n
	return true
}

// releasePages ends the reservation of n pages.
func (a *arena) releasePages(n int) {
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
	case len(a.returned) > 0:
		a.kept = min(a.kept, len(a.returned)-1)
		i := pop(&a.returned)
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
	some, more := a.detachIdle()
	for rest := some; len(rest) > 0; {
		run := 1
		for run < len(rest) && rest[run] == rest[0]+uint32(run) {
			run++
		}
		pages := a.pages[rest[0]:][:run]
		given := forget(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(pages))), run*pageBytes))
		a.finishTrim(rest[:run], given)
		rest = rest[run:]
	}
	return len(some), more
}

// detachIdle takes some idle pages, in order, off the lists; finishTrim puts them back.
func (a *arena) detachIdle() (some []uint32, more bool) {
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

// finishTrim returns the pages of detachIdle to the arena. They read as zero; given reports whether the
// kernel has them.
func (a *arena) finishTrim(pages []uint32, given bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.returned = append(a.returned, pages...)
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
	return (a.fresh - len(a.returned) + a.kept) * pageBytes
}
