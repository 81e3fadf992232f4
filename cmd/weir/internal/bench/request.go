package bench

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// endpoint is the attribute that has a field of its own in a request.
const endpoint = "endpoint"

// Attribute is one of a request.
type Attribute struct{ Key, Value string }

// Requests makes requests about keys, which differ in their identifier: the first
// attribute that is not the endpoint. It gets the key's number at its end, as in alice-7;
// one of type ip is an IPv4 address, to which the number is added.
type Requests struct {
	Domain     string
	Cost       int64 // as of the mode's call
	Attributes []Attribute

	identifier int // index in Attributes
	name       func(key uint64) string
	others     map[string]string // the attributes without a field of their own; read-only
	path       string            // the endpoint
}

// NewRequests returns requests about so many keys. The attributes must have an identifier,
// and no name twice.
func NewRequests(domain string, cost int64, attributes []Attribute, keys *Keys) (*Requests, error) {
	r := &Requests{Domain: domain, Cost: cost, Attributes: attributes}
	r.identifier = slices.IndexFunc(attributes, func(a Attribute) bool { return a.Key != endpoint })
	for i, a := range attributes {
		switch {
		case i == r.identifier:
		case a.Key == endpoint:
			r.path = a.Value
		default:
			if r.others == nil {
				r.others = make(map[string]string)
			}
			r.others[a.Key] = a.Value
		}
	}
	first := attributes[r.identifier].Value
	if attributes[r.identifier].Key == "ip" {
		var err error
		r.name, err = addresses(first, keys.n)
		return r, err
	}
	r.name = func(key uint64) string { return first + "-" + strconv.FormatUint(key, 10) }
	return r, nil
}

// domain is the one that is meant, by its name, as Envoy's API wants it.
func (r *Requests) domain() string { return cmp.Or(r.Domain, "default") }

// native returns the request of Weir's own API about a key.
func (r *Requests) native(key uint64) *weirv1.RateLimitRequest {
	return &weirv1.RateLimitRequest{
		IdentifierType:  r.Attributes[r.identifier].Key,
		Identifier:      r.name(key),
		Endpoint:        r.path,
		Attributes:      r.others,
		Domain:          r.Domain,
		TokensRequested: r.Cost,
	}
}

func (r *Requests) natives(keys []uint64) []*weirv1.RateLimitRequest {
	all := make([]*weirv1.RateLimitRequest, len(keys))
	for i, key := range keys {
		all[i] = r.native(key)
	}
	return all
}

func addresses(text string, n uint64) (func(key uint64) string, error) {
	first, err := netip.ParseAddr(text)
	if err != nil || !first.Is4() {
		return nil, fmt.Errorf("ip: %q is not the first of some IPv4 addresses, such as 10.0.0.0", text)
	}
	bytes := first.As4()
	base := uint64(binary.BigEndian.Uint32(bytes[:]))
	if base+n-1 > math.MaxUint32 {
		return nil, fmt.Errorf("ip: there are no %d addresses from %s on", n, text)
	}
	return func(key uint64) string {
		var bytes [4]byte
		binary.BigEndian.PutUint32(bytes[:], uint32(base+key))
		return netip.AddrFrom4(bytes).String()
	}, nil
}
