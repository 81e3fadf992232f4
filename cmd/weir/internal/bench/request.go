package bench

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"strconv"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Requests returns what makes requests like the template about so many keys: the
// identifier gets the key's number at its end, as in alice-7. One of type ip is an IPv4
// address, to which the number is added.
func Requests(template *weirv1.RateLimitRequest, keys *Keys) (func(key uint64) *weirv1.RateLimitRequest, error) {
	prefix := template.GetIdentifier() + "-"
	identifier := func(key uint64) string { return prefix + strconv.FormatUint(key, 10) }
	if template.GetIdentifierType() == "ip" {
		var err error
		if identifier, err = addresses(template.GetIdentifier(), keys.n); err != nil {
			return nil, err
		}
	}
	return func(key uint64) *weirv1.RateLimitRequest {
		return &weirv1.RateLimitRequest{
			IdentifierType:  template.GetIdentifierType(),
			Identifier:      identifier(key),
			Endpoint:        template.GetEndpoint(),
			Attributes:      template.GetAttributes(), // which nobody writes to
			Domain:          template.GetDomain(),
			TokensRequested: template.GetTokensRequested(),
			Peek:            template.GetPeek(),
		}
	}, nil
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
