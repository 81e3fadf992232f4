// Package clientip finds the client's address of a request that proxies have forwarded. It believes only
// the proxies that are configured.
package clientip

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the addresses of proxies that are believed.
type Proxies []netip.Prefix

// Syntax yields the addresses that a line of a header field lists, the last one first. What
// it cannot read it yields as a text that is none.
type Syntax func(line string) iter.Seq[string]

// Client returns the address of the client of a request that comes from peer, with the lines of a header
// field in which each proxy appends the address it has the request from; empty if even peer has no address.
// The list is believed from its end on, as long as the proxy that wrote an entry is trusted.
func (p Proxies) Client(peer string, lines []string, syntax Syntax) string {
	client, ok := parse(peer)
	if !ok {
		return ""
	}
	for _, line := range slices.Backward(lines) {
		for text := range syntax(line) {
			if !p.trust(client) {
				return client.String()
			}
			next, ok := parse(text)
			if !ok { // "unknown", a name, or nonsense: the proxy that wrote it is the last known address
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

// parse reads an address that may have a port, brackets or a zone. IPv4 that is mapped
// into IPv6 is IPv4.
func parse(text string) (netip.Addr, bool) {
	if inside, ok := strings.CutPrefix(text, "["); ok {
		if alone, ok := strings.CutSuffix(inside, "]"); ok {
			text = alone
		}
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		withPort, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = withPort.Addr()
	}
	return addr.Unmap().WithZone(""), true
}

// List is the Syntax of X-Forwarded-For: "10.0.0.1, 10.0.0.2:80".
func List(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for found := true; found; {
			var last string
			line, last, found = cutLast(line)
			if !yield(strings.Trim(last, " \t")) {
				return
			}
		}
	}
}

func cutLast(line string) (before, last string, found bool) {
	if i := strings.LastIndexByte(line, ','); i >= 0 {
		return line[:i], line[i+1:], true
	}
	return "", line, false
}

// Forwarded is the Syntax of the field of that name (RFC 7239): it yields what the elements
// say of "for". An element that does not say it, or a line that cannot be read, yields
// an empty text: a client may have begun a quotation that swallows what a proxy has
// appended.
func Forwarded(line string) iter.Seq[string] {
	return func(yield func(string) bool) {
		hops, ok := parseForwarded(line)
		if !ok {
			yield("")
			return
		}
		for _, hop := range slices.Backward(hops) {
			if !yield(hop) {
				return
			}
		}
	}
}

// parseForwarded returns what each element of the line says of "for". It is false if the
// line is not elements with commas in between, of pairs name=value with semicolons in
// between, of which values may be quoted.
func parseForwarded(line string) (hops []string, ok bool) {
	hop, seen := "", false
	for {
		name, rest, found := strings.Cut(line, "=")
		name = strings.Trim(name, " \t")
		if !found || !isToken(name) { // it might begin in what a proxy has appended
			return nil, false
		}
		value, rest, ok := cutValue(rest)
		if !ok {
			return nil, false
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return nil, false // which of them?
			}
			hop, seen = value, true
		}
		rest = strings.TrimLeft(rest, " \t")
		if rest == "" || rest[0] == ',' {
			hops, hop, seen = append(hops, hop), "", false
		}
		switch {
		case rest == "":
			return hops, true
		case rest[0] != ',' && rest[0] != ';':
			return nil, false
		}
		line = rest[1:]
	}
}

// isToken reports whether s is a token of RFC 9110, 5.6.2.
func isToken(s string) bool {
	other := func(r rune) bool {
		return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	}
	return s != "" && !strings.ContainsFunc(s, other)
}

// cutValue cuts a value, quoted or not, off the begin of s.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, ",; \t\"")
		if end < 0 {
			end = len(s)
		}
		return s[:end], s[end:], true
	}
	var text strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return text.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		text.WriteByte(s[i])
	}
	return "", "", false
}
