package api

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Guard refuses requests that browsers send for web pages of other origins: those that may change
// something, and those under a foreign name that resolves to the server's address. It does not
// authenticate callers.
type Guard struct {
	// Loopback says that only this machine reaches the server. Its Host is then an
	// address, localhost, or one of Hosts or Own.
	Loopback bool
	// Hosts are further names of the server, as ParseHosts has read them. If there are any, the Host
	// is an address, localhost, or one of them on every address: a port that a container listens on at all
	// addresses may be published on loopback only, which the server cannot see. Without them, a server beyond loopback
	// does not know its names, and accepts all.
	Hosts []string
	// Own are names that the server knows of itself, in lower case. They are accepted in addition, and alone refuse no others.
	Own []string
	// Refused is called with the Host of each request that is refused for it, at most maxHostName bytes of it; nil is not.
	Refused func(host string)
}

// ParseHosts reads names of hosts, without ports.
func ParseHosts(names []string) ([]string, error) {
	if n := len(names); n > maxHosts {
		return nil, fmt.Errorf("%d names are more than %d", n, maxHosts)
	}
	var hosts []string
	for _, name := range names {
		if name == "" || len(name) > maxHostName || strings.ContainsAny(name, ":/*") || !httpguts.ValidHostHeader(name) {
			return nil, fmt.Errorf("%.*q is not the name of a host, such as weir.example.com", maxHostName, name)
		}
		hosts = append(hosts, strings.ToLower(name))
	}
	return hosts, nil
}

// Protect returns a handler that passes on what g does not refuse, and has refuse answer
// the rest.
func (g Guard) Protect(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	origins := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := origins.Check(r)
		if err == nil && (g.Loopback || len(g.Hosts) > 0) && !g.knows(r.Host) {
			if g.Refused != nil {
				g.Refused(r.Host[:min(len(r.Host), maxHostName)])
			}
			err = fmt.Errorf("host: %.*q is no name of this server: ask localhost or an address, or name it in --http-hosts", maxHostName, r.Host)
		}
		if err != nil {
			refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// knows reports whether a request may have come for that host, which no name server can
// have made one of this machine's. Requests of HTTP/1.0 have none.
func (g Guard) knows(host string) bool {
	if host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(g.Hosts, host) || slices.Contains(g.Own, host)
}
