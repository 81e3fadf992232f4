package rules

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
)

// blockIndex finds what is filed under blocks of addresses. Blocks nest or are
// apart, so their borders cut the addresses into stretches, each of which lies in
// one innermost block.
type blockIndex struct{ v4, v6 stretches }

// stretches are those of one family.
type stretches struct {
	all []stretch // sorted
	// pages cut what lies between the first start and the last into pieces of one
	// length, about as many as there are stretches, so that a search is a short one:
	// the index of the stretch in which each page begins, and the last one's.
	pages []uint32
	shift uint8 // which bits of the distance to the first start count pages
}

type stretch struct {
	start number
	inner block // a copy of the innermost block; the zero value if there is none
}

type block struct {
	outer *block // the next larger one that holds it, or nil
	filed extent
}

// number is an address as a number: one of IPv4 stands in the upper bits.
type number struct{ high, low uint64 }

// newBlockIndex makes an index of what is filed under blocks, which are masked.
func newBlockIndex(filed map[netip.Prefix]extent) *blockIndex {
	if len(filed) == 0 {
		return nil
	}
	ix := new(blockIndex)
	blocks := make([]block, 0, len(filed))
	var open []netip.Addr // the last addresses of the blocks around, the innermost behind
	var top *block        // that one
	closeUntil := func(next netip.Addr) {
		for n := len(open); n > 0 && (!next.IsValid() || open[n-1].Less(next)); n-- {
			after := open[n-1].Next() // not valid after the last one of its family
			if open, top = open[:n-1], top.outer; after.IsValid() {
				ix.of(after).begin(after, cmp.Or(top, new(block)))
			}
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(filed), netip.Prefix.Compare) { // an outer one before those that it holds
		closeUntil(p.Addr())
		blocks = append(blocks, block{outer: top, filed: filed[p]})
		open, top = append(open, lastOf(p)), &blocks[len(blocks)-1]
		ix.of(p.Addr()).begin(p.Addr(), top)
	}
	closeUntil(netip.Addr{})
	ix.v4.cut()
	ix.v6.cut()
	return ix
}

// of returns the stretches of addr's family.
func (ix *blockIndex) of(addr netip.Addr) *stretches {
	if addr.Is4() {
		return &ix.v4
	}
	return &ix.v6
}

// begin starts a stretch at addr, which is no less than the last one's start.
func (s *stretches) begin(addr netip.Addr, inner *block) {
	start := numberOf(addr)
	if n := len(s.all); n > 0 && s.all[n-1].start == start {
		s.all[n-1].inner = *inner
		return
	}
	s.all = append(s.all, stretch{start, *inner})
}

// cut makes the pages.
func (s *stretches) cut() {
	if len(s.all) == 0 {
		return
	}
	first, end := s.all[0].start.high, len(s.all)-1
	span := s.all[end].start.high - first
	s.shift = uint8(max(0, bits.Len64(span)-bits.Len(uint(end))))
	for page := range span>>s.shift + 1 {
		s.pages = append(s.pages, uint32(lastNotAfter(s.all, number{high: first + page<<s.shift})))
	}
	s.pages = append(s.pages, uint32(end))
}

// find returns the innermost block that addr lies in, maybe an empty one if it lies in
// none. The zero address lies in none.
func (ix *blockIndex) find(addr netip.Addr) *block {
	if ix == nil || !addr.IsValid() {
		return nil
	}
	s, n := ix.of(addr), numberOf(addr)
	if len(s.all) == 0 || n.before(s.all[0].start) == 1 {
		return nil
	}
	page := min((n.high-s.all[0].start.high)>>s.shift, uint64(len(s.pages)-2))
	begin := s.pages[page]
	near := s.all[begin : s.pages[page+1]+1]
	return &near[lastNotAfter(near, n)].inner
}

// lastNotAfter returns the index of the last of sorted that begins not after n, 0 if
// there is none. It has no branches that depend on n: nothing could predict them.
func lastNotAfter(sorted []stretch, n number) int {
	i := 0
	for length := len(sorted); length > 1; {
		half := length / 2
		i += half & (n.before(sorted[i+half].start) - 1)
		length -= half
	}
	return i
}

func numberOf(addr netip.Addr) number {
	if addr.Is4() {
		b := addr.As4()
		return number{high: uint64(binary.BigEndian.Uint32(b[:])) << 32}
	}
	b := addr.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// before returns 1 if n is less than other, else 0.
func (n number) before(other number) int {
	_, borrow := bits.Sub64(n.low, other.low, 0)
	_, borrow = bits.Sub64(n.high, other.high, borrow)
	return int(borrow)
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
