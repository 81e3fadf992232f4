package gate

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// IPAttribute is the attribute that nodes understand as an address.
const IPAttribute = "ip"

// Proxies are the blocks of addresses of proxies that tell the truth.
type Proxies []netip.Prefix

// Validate reports a block that is none.
func (p Proxies) Validate() error {
	if slices.ContainsFunc(p, func(block netip.Prefix) bool { return !block.IsValid() }) {
		return errors.New("ip: a block of trusted proxies is invalid")
	}
	return nil
}

// Client returns the address of whom a request comes from: from peer, who may have it
// from another, and so on. Each proxy appends to X-Forwarded-For, whose lines forwarded
// are, whom it has the request from; so the list is believed from its end on, for as long
// as those who tell are trusted. It is "" if even peer has no address.
func (p Proxies) Client(peer string, forwarded []string) string {
	client, ok := parseAddress(peer)
	if !ok {
		return ""
	}
	for _, line := range slices.Backward(forwarded) {
		for found := true; found && p.trust(client); {
			var hop string
			line, hop, found = cutLast(line)
			next, ok := parseAddress(strings.Trim(hop, " \t"))
			if !ok { // "unknown", or nonsense: who told so is the last one known
				return client.String()
			}
			client = next
		}
	}
	return client.String()
}

func (p Proxies) trust(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(block netip.Prefix) bool { return block.Contains(addr) })
}

// cutLast cuts the last element off a list with commas.
func cutLast(line string) (before, last string, found bool) {
	if i := strings.LastIndexByte(line, ','); i >= 0 {
		return line[:i], line[i+1:], true
	}
	return "", line, false
}

// parseAddress reads an address that may have a port, brackets or a zone. IPv4 that is
// mapped into IPv6 is IPv4.
func parseAddress(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		withPort, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), true
}
