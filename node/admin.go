package node

import (
	"cmp"
	"context"
	"net"
	"net/http"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/api"
)

// adminServer serves the admin port: HTTP, and gRPC on the same port.
type adminServer struct {
	http *http.Server
	grpc *grpc.Server // answers the calls that http hands over
}

// newAdminServer returns the server of the admin port.
func (n *node) newAdminServer() (*adminServer, error) {
	permits := n.access.At(api.AdminPort)
	calls := newGRPCServer()
	n.closers = append(n.closers, calls.Stop)
	n.registerCalls(calls, permits)
	s, err := n.newHTTPServer(n.opts.Admin, api.HTTPConfig{Permits: permits, Profiles: profiles(), GRPC: calls})
	return &adminServer{s, calls}, err
}

// stop lets calls under way finish until patience ends.
func (s *adminServer) stop(patience context.Context) {
	if err := s.http.Shutdown(patience); err != nil {
		_ = s.http.Close() // the clients had their time
	}
	s.grpc.Stop()
}

func (o Options) badAdmin() string {
	if o.Admin == "" {
		return ""
	}
	return o.badListener(o.Admin)
}

// callsAt returns where others ask this node for changes, as host:port.
func (o Options) callsAt() string { return cmp.Or(o.advertisedAdmin(), o.Advertise) }

// advertisedAdmin returns where others reach the admin port: a wildcard stands for the host of Advertise.
func (o Options) advertisedAdmin() string {
	host, port, err := net.SplitHostPort(o.Admin)
	if err != nil || !isWildcard(host) {
		return o.Admin
	}
	host, _, _ = net.SplitHostPort(o.Advertise)
	return net.JoinHostPort(host, port)
}
