package rules

import (
	"net/netip"
	"slices"
)

// blockIndex finds the subjects filed under blocks of addresses. Blocks nest or are
// apart, so their borders cut the addresses into stretches, each of which lies in
// one innermost block.
type blockIndex struct {
	starts []netip.Addr // of stretches, sorted
	inner  []*block     // the innermost block of each, or nil
	pages  []netip.Addr // every pageSize-th start: a search there misses the cache less
}

const pageSize = 64

type block struct {
	outer    *block // the next larger one that holds it, or nil
	subjects []*subject
	last     netip.Addr
}

// newBlockIndex takes over subjects by block; all blocks are masked.
func newBlockIndex(subjects map[netip.Prefix][]*subject) blockIndex {
	var ix blockIndex
	var top *block // the innermost block at the start of the last stretch
	closeUntil := func(next netip.Addr) {
		for top != nil && (!next.IsValid() || top.last.Less(next)) {
			after := top.last.Next() // not valid after the last one of its family
			if top = top.outer; after.IsValid() {
				ix.begin(after, top)
			}
		}
	}
	prefixes := make([]netip.Prefix, 0, len(subjects))
	for p := range subjects {
		prefixes = append(prefixes, p)
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare) // an outer one before those that it holds
	for _, p := range prefixes {
		closeUntil(p.Addr())
		top = &block{outer: top, subjects: subjects[p], last: lastOf(p)}
		ix.begin(p.Addr(), top)
	}
	closeUntil(netip.Addr{})
	return ix
}

// begin starts a stretch at addr, which is no less than the last one's start.
func (ix *blockIndex) begin(addr netip.Addr, inner *block) {
	if n := len(ix.starts); n > 0 && ix.starts[n-1] == addr {
		ix.inner[n-1] = inner
		return
	}
	if len(ix.starts)%pageSize == 0 {
		ix.pages = append(ix.pages, addr)
	}
	ix.starts = append(ix.starts, addr)
	ix.inner = append(ix.inner, inner)
}

// find returns the innermost block that addr lies in, or nil. The zero address lies
// in none.
func (ix *blockIndex) find(addr netip.Addr) *block {
	page := lastNotAfter(ix.pages, addr)
	if page < 0 {
		return nil
	}
	begin := page * pageSize
	i := begin + lastNotAfter(ix.starts[begin:min(begin+pageSize, len(ix.starts))], addr)
	if ix.inner[i] == nil || ix.inner[i].last.Less(addr) { // IPv6, after the last block of IPv4
		return nil
	}
	return ix.inner[i]
}

// lastNotAfter returns the index of the last of sorted that is not after addr, or
// -1.
func lastNotAfter(sorted []netip.Addr, addr netip.Addr) int {
	i, found := slices.BinarySearchFunc(sorted, addr, netip.Addr.Compare)
	if !found {
		i--
	}
	return i
}

// lastOf returns the last address of p.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes) // has the length of an address
	return last
}
