package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"unsafe"

	"github.com/weirlimit/weir/ring"
)

// IPAttribute is the attribute whose values are addresses: conditions and
// counters see them in one form, however they are written.
const IPAttribute = "ip"

// defaultIPv6Prefix is what one customer has at least: whoever has a /64 has 2^64
// addresses.
const defaultIPv6Prefix = 64

// maxIPText is more than the longest text of an address, or of a block.
const maxIPText = 64

// ValidIP says whether value is an IP address, maybe with a port, in brackets, or
// with a zone.
func ValidIP(value string) bool {
	_, _, ok := parseIP(value)
	return ok
}

// addressBytes are those that an address is written with.
var addressBytes = func() (is [256]bool) {
	for _, b := range []byte("0123456789abcdefABCDEF:.") {
		is[b] = true
	}
	return is
}()

// onlyAddressBytes says whether s may be an address.
func onlyAddressBytes(s string) bool {
	for i := range len(s) {
		if !addressBytes[s[i]] {
			return false
		}
	}
	return true
}

// looksLikeIP says whether a text can only have been meant as an address.
func looksLikeIP(s string) bool {
	return onlyAddressBytes(s) && strings.ContainsAny(s, ":.")
}

// parseIP reads an address without its port, brackets and zone, and returns the text
// of the rest as well. IPv4 that is mapped into IPv6 is IPv4. It allocates only for
// what looks like an address and is none.
func parseIP(value string) (addr netip.Addr, text string, ok bool) {
	text, ok = cutPort(value)
	if !ok {
		return netip.Addr{}, "", false
	}
	text, _, zoned := strings.Cut(text, "%")
	if !onlyAddressBytes(text) {
		return netip.Addr{}, "", false
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || zoned && addr.Is4() {
		return netip.Addr{}, "", false
	}
	return addr.Unmap(), text, true
}

// cutPort takes brackets and port off an address. It is false if what follows the
// address is no port.
func cutPort(value string) (host string, ok bool) {
	host, port, hasPort := strings.Cut(value, ":")
	if inside, bracketed := strings.CutPrefix(value, "["); bracketed {
		var rest string
		if host, rest, ok = strings.Cut(inside, "]"); !ok || rest == "" {
			return host, ok
		}
		if port, ok = strings.CutPrefix(rest, ":"); !ok {
			return "", false
		}
	} else if !hasPort || strings.Contains(port, ":") {
		return value, true // IPv6 has more than one colon
	}
	return host, port != "" && len(port) <= 5 && !strings.ContainsFunc(port, notDigit)
}

func notDigit(r rune) bool { return r < '0' || r > '9' }

// parseIPPattern is parsePattern for conditions on addresses.
func parseIPPattern(s string, budget *int) (pattern, error) {
	p, err := parsePattern(s, budget)
	if err != nil || p.kind != kindExact {
		return p, err
	}
	if strings.Contains(s, "/") {
		return parseBlock(s)
	}
	if addr, _, ok := parseIP(s); ok {
		p.text, p.block = addr.String(), netip.PrefixFrom(addr, addr.BitLen())
	}
	return p, nil
}

func parseBlock(s string) (pattern, error) {
	block, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return pattern{}, errors.New("is not a block of addresses; write one such as 10.0.0.0/8 or 2001:db8::/32")
	case block.Addr().Is4In6():
		return pattern{}, errors.New("holds IPv4 addresses mapped into IPv6, which are taken for IPv4; write it as a block of IPv4")
	case block != block.Masked():
		return pattern{}, fmt.Errorf("has an address within the block; write %s", block.Masked())
	}
	return pattern{kind: kindBlock, text: block.String(), block: block}, nil
}

// texts is memory for the canonical form of addresses. (On the stack it would not
// stay there: the way into regexp is too long for the compiler.)
var texts = sync.Pool{New: func() any { return new([maxIPText]byte) }}

// withIP returns req with what its attribute ip says, if that is an address. Else,
// such as for "unknown", it is used as it is. inForm says that the text of the address
// is canonical as it stands.
func (r *Request) withIP() (req Request, inForm bool) {
	req = Request{Domain: r.Domain, Attributes: r.Attributes}
	value, present := req.value(IPAttribute)
	if !present {
		return req, true
	}
	addr, text, ok := parseIP(value)
	if !ok {
		return req, true
	}
	req.addr, req.ip = addr, text
	return req, addr.Is4() && !strings.Contains(text, ":") // not mapped: there is no other form
}

// format makes the text of the address canonical, in memory that it is good as long as.
func (r *Request) format(memory *[maxIPText]byte) {
	r.ip = unsafe.String(&memory[0], len(r.addr.AppendTo(memory[:0])))
}

// canonicalOf returns req with its address in its canonical form.
func canonicalOf(req *Request) *Request {
	canonical, inForm := req.withIP()
	if !inForm {
		canonical.ip = canonical.addr.String()
	}
	return &canonical
}

// matchIP is match for a domain whose rules look at addresses.
func (ix *index) matchIP(h ring.Hasher, given *Request, buf []Match) []Match {
	req, inForm := given.withIP()
	if inForm || req.addr.Is6() && !ix.ipText {
		return ix.match(h, &req, buf)
	}
	memory := texts.Get().(*[maxIPText]byte)
	req.format(memory)
	buf = ix.match(h, &req, buf)
	texts.Put(memory)
	return buf
}

// appendIP appends the encoding of the block of bits that an IPv6 address lies in.
func appendIP(name []byte, addr netip.Addr, bits int) []byte {
	var buf [maxIPText]byte
	return appendText(name, netip.PrefixFrom(addr, bits).Masked().AppendTo(buf[:0]))
}
