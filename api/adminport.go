package api

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Port says which calls are served where a caller has connected. The column port of needs says it for each call.
type Port uint8

// The ports.
const (
	// AnyPort serves all calls: that of a node without an admin port. As the port of a call it means that all
	// ports serve it.
	AnyPort Port = iota
	// PublicPort is that of checks, of a node that has an admin port too.
	PublicPort
	// AdminPort is that of metrics, profiles, health details and changes.
	AdminPort
)

// serves reports whether calls of port at are served at p.
func (p Port) serves(at Port) bool { return p == AnyPort || at == AnyPort || p == at }

// refusal is the status of a call that is served at the other port of the node.
func (p Port) refusal() error {
	if p == AdminPort {
		return status.Error(codes.Unimplemented, "not served at the admin port: checks are for the node's other ports (--grpc, --http)")
	}
	return status.Error(codes.Unimplemented, "not served at this port: this node has an admin port (--admin), and metrics, profiles and changes are served there only")
}
