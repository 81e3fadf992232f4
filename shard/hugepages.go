package shard

import "unsafe"

// Bounds of huge pages. One saves the processor the look-up of 512 small ones, which among millions of
// counters takes a fifth of a check. From the first touch on they would stall whoever touches one while 2 MiB are
// zeroed, and waste what is not used; so memory begins as small pages, and the sweeper has the kernel
// lay together what is in use as a whole. See docs/adr/0011-counters-in-pages.md.
const (
	hugeBytes   = 2 << 20
	hugePages   = hugeBytes / pageBytes // of ours
	hugePerTick = 4                     // laid together at once: each takes some 0.5 ms, and a check that needs it waits
)

// regions are the parts of an arena that may be huge pages.
type regions struct {
	skew  int // pages of the first one that are before the arena
	all   []region
	ready []uint32 // those that are so marked, but for those in later
	later []uint32 // those that the kernel could not make huge pages of, as it had some page of them in hand
	never bool     // the kernel does not have them
}

type region struct {
	used  int  // pages that are in memory
	ready bool // it was used as a whole, and is to be looked at
}

func newRegions(pages []page) regions {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(pages)))
	skew := int(base%hugeBytes) / pageBytes
	return regions{skew: skew, all: make([]region, (skew+len(pages)+hugePages-1)/hugePages)}
}

func (r *regions) of(page uint32) uint32 { return uint32((int(page) + r.skew) / hugePages) }

// first returns the number of the region's first page.
func (r *regions) first(i uint32) int { return int(i)*hugePages - r.skew }

// added says that a page is in memory, and removed that it is not any more.
func (r *regions) added(page uint32) {
	i := r.of(page)
	a := &r.all[i]
	if a.used++; a.used == hugePages && !a.ready && !r.never {
		a.ready = true
		r.ready = append(r.ready, i)
	}
}

func (r *regions) removed(page uint32) { r.all[r.of(page)].used-- }

// next takes some off those that are ready, and are still used as a whole.
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

// failed says that one that was ready is no huge page, and whether it may be another time.
func (r *regions) failed(i uint32, again bool) {
	switch {
	case !again || r.never:
		r.never, r.ready, r.later = true, nil, nil
	case !r.all[i].ready:
		r.all[i].ready = true
		r.later = append(r.later, i)
	}
}

// retry has those be tried again that have failed.
func (a *arena) retry() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.regions.ready, a.regions.later = append(a.regions.ready, a.regions.later...), a.regions.later[:0]
}

// layTogether makes huge pages of some regions that are used as a whole. It is called by whoever
// calls trim, so that none of their pages goes back to the kernel meanwhile.
func (a *arena) layTogether() {
	a.mu.Lock()
	some := a.regions.next()
	a.mu.Unlock()
	for _, i := range some {
		pages := a.pages[a.regions.first(i):][:hugePages]
		if done, again := layTogether(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(pages))), hugeBytes)); !done {
			a.mu.Lock()
			a.regions.failed(i, again)
			a.mu.Unlock()
		}
	}
}
