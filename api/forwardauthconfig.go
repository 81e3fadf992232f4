package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/weirlimit/weir/rules"
)

// AuthConfig says how a request that a proxy asks about becomes attributes. Path, method
// and client address do by themselves.
type AuthConfig struct {
	// TrustedProxies are the addresses whose word on the client's address is taken.
	TrustedProxies []netip.Prefix
	// ClientIPHeader is where they say it: one of ClientIPHeaders. Only one is looked at, as a
	// proxy that writes one passes on the others as clients send them.
	ClientIPHeader string
	// Attributes come from header fields, which the proxy must not let clients choose.
	Attributes []AuthAttribute
	// MaxDelay is how long a request may be held until its turn comes, where rules book
	// turns. Those that would have to wait for longer are denied.
	MaxDelay time.Duration
}

// AuthAttribute is an attribute and the header field, in the spelling of package http,
// that it comes from.
type AuthAttribute struct{ Name, Header string }

// methodAttribute is what rules call a request's method.
const methodAttribute = "method"

// ClientIPHeaders are the header fields in which proxies pass on the client's address, in
// the spelling of package http.
var ClientIPHeaders = []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip"}

// ParseClientIP returns the one of ClientIPHeaders that name is in any spelling.
func ParseClientIP(name string) (string, error) {
	if canonical := http.CanonicalHeaderKey(name); slices.Contains(ClientIPHeaders, canonical) {
		return canonical, nil
	}
	return "", fmt.Errorf("%q is not one of %s", name, strings.Join(ClientIPHeaders, ", "))
}

// ParseTrustedProxies reads addresses and blocks of them, or "none" alone.
func ParseTrustedProxies(texts []string) ([]netip.Prefix, error) {
	if len(texts) == 1 && texts[0] == "none" {
		return nil, nil
	}
	var blocks []netip.Prefix
	for _, text := range texts {
		block, err := parseBlock(text)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

func parseBlock(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	block, err := netip.ParsePrefix(text)
	switch {
	case err != nil || block.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%q is not an address nor a block of addresses, such as 10.0.0.0/8 or 2001:db8::/32", text)
	case block != block.Masked():
		return netip.Prefix{}, fmt.Errorf("%q has an address within the block; write %s", text, block.Masked())
	}
	return block, nil
}

// ParseAuthAttributes reads attributes written as name=header.
func ParseAuthAttributes(texts []string) ([]AuthAttribute, error) {
	if n := len(texts); n > maxAuthAttributes {
		return nil, fmt.Errorf("%d attributes are more than %d", n, maxAuthAttributes)
	}
	var attributes []AuthAttribute
	for _, text := range texts {
		name, header, _ := strings.Cut(text, "=")
		switch {
		case name == "" || !httpguts.ValidHeaderFieldName(header):
			return nil, fmt.Errorf("%q is not an attribute and a header field, such as user=X-User", text)
		case len(name) > maxKey:
			return nil, fmt.Errorf("%q: the attribute has %d bytes, more than %d", text, len(name), maxKey)
		case name == rules.IPAttribute || name == endpointAttribute || name == methodAttribute:
			return nil, fmt.Errorf("%q: the attribute %s is what the proxy says of the request", text, name)
		case slices.ContainsFunc(attributes, func(a AuthAttribute) bool { return a.Name == name }):
			return nil, fmt.Errorf("%q: the attribute %s stands there twice", text, name)
		}
		attributes = append(attributes, AuthAttribute{name, http.CanonicalHeaderKey(header)})
	}
	return attributes, nil
}
