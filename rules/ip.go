package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/weirlimit/weir/ring"
)

// IPAttribute is the attribute whose values are addresses: conditions and
// counters see them in one form, however they are written.
const IPAttribute = "ip"

// defaultIPv6Prefix is what one customer has at least: a customer with a /64 has 2^64 addresses.
const defaultIPv6Prefix = 64

// maxIPText is more than the longest text of an address, or of a block.
const maxIPText = 64

// ValidIP says whether value is an IP address, maybe with a port, in brackets, or
// with a zone.
func ValidIP(value string) bool {
	_, ok := ParseIP(value)
	return ok
}

// ParseIP returns the address that value is, without port, brackets and zone. IPv4 that
// is mapped into IPv6 is IPv4.
func ParseIP(value string) (addr netip.Addr, ok bool) {
	addr, _, ok = parseIPText(value)
	return addr, ok
}

// onlyAddressBytes says whether s may be an address.
func onlyAddressBytes(s string) bool {
	for i := range len(s) {
		if b := s[i]; !isDigit(b) && (b|0x20 < 'a' || b|0x20 > 'f') && b != ':' && b != '.' {
			return false
		}
	}
	return true
}

func isDigit(b byte) bool { return b-'0' <= 9 }

// parseIPText reads an address without its port, brackets and zone, and returns the text
// of the rest as well. IPv4 that is mapped into IPv6 is IPv4. It allocates only for
// what looks like an address and is none.
func parseIPText(value string) (addr netip.Addr, text string, ok bool) {
	if addr, text, ok = parseIPv4(value); ok {
		return addr, text, true
	}
	if addr, ok = parseIPv6(value); ok {
		return addr.Unmap(), value, true
	}
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

// parseIPv4 reads IPv4, maybe with a port, as netip and cutPort do, which see to the rest.
func parseIPv4(s string) (addr netip.Addr, text string, ok bool) {
	var bytes [4]byte
	n, digits, value := 0, 0, 0 // bytes that there are, and digits and value of the next one
	for i := range len(s) {
		switch b := s[i]; {
		case isDigit(b) && (digits == 0 || value > 0): // no leading zeros
			if value = value*10 + int(b-'0'); value > math.MaxUint8 {
				return netip.Addr{}, "", false
			}
			digits++
		case b == '.' && digits > 0 && n < 3:
			bytes[n] = byte(value)
			n, digits, value = n+1, 0, 0
		case b == ':' && digits > 0 && n == 3 && isPort(s[i+1:]):
			bytes[n] = byte(value)
			return netip.AddrFrom4(bytes), s[:i], true
		default:
			return netip.Addr{}, "", false
		}
	}
	if digits == 0 || n < 3 {
		return netip.Addr{}, "", false
	}
	bytes[n] = byte(value)
	return netip.AddrFrom4(bytes), s, true
}

func isPort(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 5
}

// parseIPv6 reads IPv6 without dots, brackets and zone, three times as fast as netip,
// which sees to the rest.
func parseIPv6(s string) (netip.Addr, bool) {
	var bytes [16]byte
	n, gap := 0, -1 // how many there are, and how many before "::"
	var group uint16
	digits := 0
	for i := range len(s) {
		switch digit := hexDigits[s[i]]; {
		case digit < 16 && digits < 4 && n < len(bytes):
			group, digits = group<<4|uint16(digit), digits+1
		case s[i] == ':' && digits > 0:
			binary.BigEndian.PutUint16(bytes[n:], group)
			n, group, digits = n+2, 0, 0
		case s[i] == ':' && i > 0 && s[i-1] == ':' && gap < 0:
			gap = n
		case i > 0 || !strings.HasPrefix(s, "::"):
			return netip.Addr{}, false
		}
	}
	if digits > 0 {
		binary.BigEndian.PutUint16(bytes[n:], group)
		n += 2
	} else if gap != n { // ends with one colon
		return netip.Addr{}, false
	}
	if gap < 0 != (n == len(bytes)) {
		return netip.Addr{}, false
	}
	if gap >= 0 {
		copy(bytes[len(bytes)-(n-gap):], bytes[gap:n])
		clear(bytes[gap : len(bytes)-(n-gap)])
	}
	return netip.AddrFrom16(bytes), true
}

// hexDigits are the values of hexadecimal digits, and 16 for other bytes: a branch for
// letters would be taken at random.
var hexDigits = func() (values [256]uint8) {
	for b := range values {
		values[b] = 16
		if n, err := strconv.ParseUint(string(rune(b)), 16, 8); err == nil {
			values[b] = uint8(n)
		}
	}
	return values
}()

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
	return host, isPort(port)
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
	if addr, _, ok := parseIPText(s); ok {
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

// readIP notes what the attribute ip says, if that is an address. Else, such as
// "unknown", it is used as it is. It returns whether the text is in canonical form.
func (r *Request) readIP() (canonical bool) {
	r.ip = ""
	value, _ := r.value(IPAttribute)
	addr, text, ok := parseIPText(value)
	if !ok {
		return true
	}
	r.addr, r.ip = addr, text
	return addr.Is4() && !strings.Contains(text, ":") // not mapped: there is no other form
}

// canonicalOf returns req with its address in canonical form.
func canonicalOf(req *Request) *Request {
	canonical := *req
	if !canonical.readIP() {
		canonical.ip = canonical.addr.String()
	}
	return &canonical
}

// matchIP is match for a domain whose rules look at addresses.
func (ix *index) matchIP(h ring.Hasher, given *Request, buf []Match) []Match {
	req := Request{Domain: given.Domain, Attributes: given.Attributes}
	if req.readIP() || req.addr.Is6() && !ix.ipText {
		return ix.match(h, &req, buf)
	}
	text := texts.Get().(*[maxIPText]byte)
	req.ip = unsafe.String(&text[0], len(req.addr.AppendTo(text[:0])))
	buf = ix.match(h, &req, buf)
	texts.Put(text)
	return buf
}

// appendIP appends the encoding of the block of bits that an IPv6 address lies in.
func appendIP(name []byte, addr netip.Addr, bits int) []byte {
	length := len(name)
	name = append(name, 0)
	if bits <= 64 {
		name = appendHalf(name, numberOf(addr).high>>(64-bits)<<(64-bits), bits)
	} else {
		name = netip.PrefixFrom(addr, bits).Masked().AppendTo(name)
	}
	name[length] = byte(len(name) - length - 1) // less than maxIPText: one byte, as appendText writes it
	return name
}

// appendHalf is netip.Prefix.AppendTo for a block whose lower half is 0: it has no
// longer run of zeros than that at the end, which text leaves out.
func appendHalf(name []byte, high uint64, bits int) []byte {
	if high == 0 {
		name = append(name, ':')
	}
	for ; high != 0; high <<= 16 {
		name = append(appendGroup(name, uint16(high>>48)), ':')
	}
	return strconv.AppendInt(append(name, ':', '/'), int64(bits), 10)
}

// appendGroup is strconv.AppendUint for the 16 bits between two colons.
func appendGroup(name []byte, group uint16) []byte {
	const digits = "0123456789abcdef"
	for shift := max(0, bits.Len16(group)-1) &^ 3; shift >= 0; shift -= 4 {
		name = append(name, digits[group>>shift&15])
	}
	return name
}
