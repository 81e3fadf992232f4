package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/rules"
)

// clientIP returns the address of the client of the request that r asks about, empty if
// even the caller has none. Each proxy tells whom it has the request from, so the list is
// believed from its end on for as long as those who tell are trusted.
func (c *AuthConfig) clientIP(r *http.Request) string {
	client, ok := rules.ParseIP(r.RemoteAddr)
	if !ok {
		return ""
	}
	for _, line := range slices.Backward(r.Header[c.ClientIP]) {
		hops := addresses
		if c.ClientIP == "Forwarded" {
			hops = forwardedFor
		}
		for text := range hops(line) {
			if !c.trusts(client) {
				return client.String()
			}
			next, ok := rules.ParseIP(text)
			if !ok { // "unknown", a name, or nonsense: who told so is the last one known
				return client.String()
			}
			client = next
		}
	}
	return client.String()
}

func (c *AuthConfig) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(c.TrustedProxies, func(block netip.Prefix) bool { return block.Contains(addr) })
}

// addresses yields the elements of a list such as "10.0.0.1, 10.0.0.2:80", the last one
// first.
func addresses(line string) func(yield func(string) bool) {
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

// forwardedFor yields what the elements of a Forwarded field (RFC 7239) say of "for", the
// last one first. An element that does not say it, or a line that cannot be read, yields
// an empty text: a client may have begun a quotation that swallows what a proxy has
// appended.
func forwardedFor(line string) func(yield func(string) bool) {
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
		if !found {
			return nil, false
		}
		value, rest, ok := cutValue(rest)
		if !ok {
			return nil, false
		}
		if strings.EqualFold(strings.Trim(name, " \t"), "for") {
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
