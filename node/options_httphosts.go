package node

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/api"
)

// guard returns what keeps the web pages of others from the HTTP API at one of this node's addresses.
func (n *node) guard(address string) api.Guard {
	host, _, _ := net.SplitHostPort(address)
	hosts, _ := api.ParseHosts(n.opts.HTTPHosts)
	return api.Guard{Loopback: isLoopback(host), Hosts: hosts, Own: n.names, Refused: func(host string) {
		n.refusedHost.Do(func() {
			n.log.Warn("a request over HTTP is refused, as its Host is no name that this node knows; if it is a name of this node, add it to --http-hosts; "+
				"further ones are refused without a message", "host", host, "port", address)
		})
	}}
}

// ownNames returns the host names in the addresses of this node, of options that are valid. Nodes and clients reach it by them, so that
// their owner is that of the node.
func (o Options) ownNames() (names []string) {
	for _, address := range []string{o.Advertise, o.GRPC, o.HTTP, o.Admin} {
		host, _, _ := net.SplitHostPort(address)
		host = strings.ToLower(strings.TrimSuffix(host, "."))
		if _, err := netip.ParseAddr(host); err != nil && host != "" && !slices.Contains(names, host) {
			names = append(names, host)
		}
	}
	return names
}

func badHTTPHosts(names []string) string {
	_, err := api.ParseHosts(names)
	return problemOf(err)
}
