// Package xdstest runs the xDS server of go-control-plane, which is that of Envoy Gateway, for tests of any package.
package xdstest

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// patience bounds the wait for what must happen.
const patience = 20 * time.Second

// NodeID is the node for which a Server has resources if it is told of no other, as Envoy Gateway's has.
const NodeID = "envoy-ratelimit"

// Server is an xDS server that can be stopped and started again at its address.
type Server struct {
	Address string // host:port
	NodeID  string // the node for which it has resources

	creds    credentials.TransportCredentials
	cache    cachev3.SnapshotCache
	requests chan *discoveryv3.DiscoveryRequest
	grpc     *grpc.Server
	ended    chan struct{}
}

// New returns a server that does not run yet, at an address of its own. Nil credentials are none.
func New(t testing.TB, creds credentials.TransportCredentials) *Server {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	address := l.Addr().String()
	_ = l.Close() // the port is known, and free again
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	return &Server{Address: address, NodeID: NodeID, creds: creds}
}

// Start starts the server without resources, as one that has forgotten all.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	s.cache = cachev3.NewSnapshotCache(false, cachev3.IDHash{}, nil)
	s.requests = make(chan *discoveryv3.DiscoveryRequest, 1024)
	requests := s.requests
	ctx, cancel := context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(grpc.Creds(s.creds))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.grpc, serverv3.NewServer(ctx, s.cache, serverv3.CallbackFuncs{
		StreamRequestFunc: func(_ int64, request *discoveryv3.DiscoveryRequest) error {
			select {
			case requests <- request:
				return nil
			default:
				return fmt.Errorf("more than %d requests", cap(requests))
			}
		},
	}))
	l, server, ended := listen(t, s.Address), s.grpc, make(chan struct{})
	s.ended = ended
	go func() {
		defer close(ended)
		defer cancel()
		_ = server.Serve(l) // ends with Stop
	}()
	t.Cleanup(s.Stop)
}

// Stop ends the server and its streams at once.
func (s *Server) Stop() {
	if s.grpc != nil {
		s.grpc.Stop()
		<-s.ended
		s.grpc = nil
	}
}

// Set gives the server all its resources, under a version.
func (s *Server) Set(t testing.TB, version string, configs ...*rlsconf.RateLimitConfig) {
	t.Helper()
	resources := make([]types.Resource, len(configs))
	for i, config := range configs {
		resources[i] = config
	}
	snapshot, err := cachev3.NewSnapshot(version, map[resourcev3.Type][]types.Resource{resourcev3.RateLimitConfigType: resources})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cache.SetSnapshot(context.Background(), s.NodeID, snapshot); err != nil {
		t.Fatal(err)
	}
}

// Subscribed waits for the first request of a stream, and returns it.
func (s *Server) Subscribed(t testing.TB) *discoveryv3.DiscoveryRequest {
	t.Helper()
	return s.await(t, "a subscription", func(r *discoveryv3.DiscoveryRequest) bool { return r.GetResponseNonce() == "" })
}

// Accepted waits until the client has acknowledged a version.
func (s *Server) Accepted(t testing.TB, version string) {
	t.Helper()
	s.await(t, "an ACK of "+version, func(r *discoveryv3.DiscoveryRequest) bool {
		return r.GetErrorDetail() == nil && r.GetResponseNonce() != "" && r.GetVersionInfo() == version
	})
}

// Refused waits for a NACK, and returns it.
func (s *Server) Refused(t testing.TB) *discoveryv3.DiscoveryRequest {
	t.Helper()
	return s.await(t, "a NACK", func(r *discoveryv3.DiscoveryRequest) bool { return r.GetErrorDetail() != nil })
}

func (s *Server) await(t testing.TB, what string, is func(*discoveryv3.DiscoveryRequest) bool) *discoveryv3.DiscoveryRequest {
	t.Helper()
	late := time.After(patience)
	for {
		select {
		case r := <-s.requests:
			if is(r) {
				return r
			}
		case <-late:
			t.Fatalf("the server has not seen %s in %v", what, patience)
		}
	}
}

func listen(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
