package shard

import "unsafe"

// Bounds of huge pages. One replaces 512 small pages, whose look-up takes a fifth of a check among millions
// of counters. A huge page from the first touch on would stall that check while 2 MiB are zeroed, and waste
// unused memory. So memory begins as small pages, and the sweeper has the kernel collapse regions that are
// in use as a whole. See docs/adr/0011-counters-in-pages.md.
const (
	hugeBytes   = 2 << 20
	hugePages   = hugeBytes / pageBytes // of ours
	hugePerTick = 4                     // collapsed at once: each takes some 0.5 ms, and a check that needs it waits
)

// regions are the parts of an arena that may be huge pages.
type regions struct {
	skew  int // pages of the first one that are before the arena
	all   []region
	ready []uint32 // regions marked ready, except those in later
	later []uint32 // regions that the kernel could not collapse, as one of their pages was in use by it
	never bool     // the kernel does not support it
}

type region struct {
	used  int  // pages that are in memory
	ready bool // it was used as a whole, and should be collapsed
}

func newRegions(pages []page) regions {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(pages)))
	skew := int(base%hugeBytes) / pageBytes
	return regions{skew: skew, all: make([]region, (skew+len(pages)+hugePages-1)/hugePages)}
}

func (r *regions) of(page uint32) uint32 { return uint32((int(page) + r.skew) / hugePages) }

// first returns the number of the region's first page.
func (r *regions) first(i uint32) int { return int(i)*hugePages - r.skew }

// added counts a page that is now in memory; removed counts one that no longer is.
func (r *regions) added(page uint32) {
	i := r.of(page)
	a := &r.all[i]
	if a.used++; a.used == hugePages && !a.ready && !r.never {
		a.ready = true
		r.ready = append(r.ready, i)
	}
}

func (r *regions) removed(page uint32) { r.all[r.of(page)].used-- }

// next removes some regions from ready and returns those still used as a whole.
func (r *regions) next() (some []uint32) {
	for len(r.ready) > 0 && len(some) < hugePerTick {
		i := pop(&r.ready)
		a := &r.all[i]
		if a.ready = false; a.used == hugePages {
			some = append(some, i)
		}
	}
	return some
}

// failed records that region i was not collapsed; again reports whether to try later.
func (r *regions) failed(i uint32, again bool) {
	switch {
	case !again || r.never:
		r.never, r.ready, r.later = true, nil, nil
	case !r.all[i].ready:
		r.all[i].ready = true
		r.later = append(r.later, i)
	}
}

// retry makes failed regions ready again.
func (a *arena) retry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.regions.ready, a.regions.later = append(a.regions.ready, a.regions.later...), a.regions.later[:0]
}

// collapseRegions makes huge pages of some regions that are used as a whole. Only the goroutine that calls
// trim may call it, so that none of their pages returns to the kernel meanwhile.
func (a *arena) collapseRegions() {
	a.mu.Lock()
	some := a.regions.next()
	a.mu.Unlock()
	for _, i := range some {
		pages := a.pages[a.regions.first(i):][:hugePages]
		if done, again := collapsePages(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(pages))), hugeBytes)); !done {
			a.mu.Lock()
			a.regions.failed(i, again)
			a.mu.Unlock()
		}
	}
}
