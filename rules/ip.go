package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
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
	_, ok := parseIP(value)
	return ok
}

// looksLikeIP says whether a text can only have been meant as an address.
func looksLikeIP(s string) bool {
	return strings.Trim(s, "0123456789abcdefABCDEF:.") == "" && strings.ContainsAny(s, ":.")
}

// parseIP reads an address without its port, brackets and zone. IPv4 that is
// mapped into IPv6 is IPv4. It allocates only for what looks like an address and
// is none.
func parseIP(value string) (netip.Addr, bool) {
	host, ok := cutPort(value)
	if !ok {
		return netip.Addr{}, false
	}
	host, _, zoned := strings.Cut(host, "%")
	if strings.Trim(host, "0123456789abcdefABCDEF:.") != "" {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || zoned && addr.Is4() {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
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
	return host, port != "" && len(port) <= 5 && strings.Trim(port, "0123456789") == ""
}

// parseIPPattern is parsePattern for conditions on addresses.
func parseIPPattern(s string, budget *int) (pattern, error) {
	p, err := parsePattern(s, budget)
	if err != nil || p.kind != kindExact {
		return p, err
	}
	if strings.Contains(s, "/") {
		return parseBlock(s)
	}
	if addr, ok := parseIP(s); ok {
		p.text = addr.String()
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

// address returns the index of the attribute ip in r and what it says, or -1 if
// it is absent or, such as "unknown", no address: then it is used as it is.
func (r *Request) address() (int, netip.Addr) {
	i := slices.IndexFunc(r.Attributes, func(a Attribute) bool { return a.Key == IPAttribute })
	if i < 0 {
		return -1, netip.Addr{}
	}
	addr, ok := parseIP(r.Attributes[i].Value)
	if !ok {
		return -1, netip.Addr{}
	}
	return i, addr
}

// canonical is memory for a request whose address is written in its canonical
// form. (On the stack it would not stay there: the way into regexp is too long for
// the compiler.)
type canonical struct {
	request Request
	text    [maxIPText]byte
}

var canonicals = sync.Pool{New: func() any { return new(canonical) }}

// of returns the canonical form of req, whose attribute i says addr. It is good
// until the next call.
func (c *canonical) of(req *Request, i int, addr netip.Addr) *Request {
	c.request.Domain, c.request.addr = req.Domain, addr
	c.request.Attributes = append(c.request.Attributes[:0], req.Attributes...)
	text := addr.AppendTo(c.text[:0])
	c.request.Attributes[i].Value = unsafe.String(&c.text[0], len(text))
	return &c.request
}

// canonicalOf is canonical.of in memory of its own.
func canonicalOf(req *Request) *Request {
	i, addr := req.address()
	if i < 0 {
		return req
	}
	return new(canonical).of(req, i, addr)
}

// matchIP is match for a domain whose rules look at addresses.
func (ix *index) matchIP(h ring.Hasher, req *Request, buf []Match) []Match {
	i, addr := req.address()
	if i < 0 {
		return ix.match(h, req, buf)
	}
	var text [maxIPText]byte
	if string(addr.AppendTo(text[:0])) == req.Attributes[i].Value {
		return ix.match(h, &Request{Domain: req.Domain, Attributes: req.Attributes, addr: addr}, buf)
	}
	c := canonicals.Get().(*canonical)
	buf = ix.match(h, c.of(req, i, addr), buf)
	clear(c.request.Attributes) // keeps no value of the caller's
	canonicals.Put(c)
	return buf
}

// appendIP appends the encoding of the block of bits that an IPv6 address lies in.
func appendIP(name []byte, addr netip.Addr, bits int) []byte {
	var buf [maxIPText]byte
	return appendText(name, netip.PrefixFrom(addr, bits).Masked().AppendTo(buf[:0]))
}
