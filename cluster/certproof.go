package cluster

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
)

// proof is implemented by encrypted connections and by their credentials.AuthInfo. NodeID is the id
// in the certificate of the node at the other end; it is empty if that is a client.
type proof interface{ NodeID() string }

// checkConn refuses a connection whose certificate is for another node than the hello says. It
// permits connections that are not encrypted: whether these are accepted is decided before.
func checkConn(conn net.Conn, says Identity) error {
	if p, encrypted := conn.(proof); encrypted {
		return checkProof(p, says.ID)
	}
	return nil
}

// checkCall does the same for a call, whose caller says that it is the node says.
func checkCall(ctx context.Context, says string) error {
	p, found := grpcpeer.FromContext(ctx)
	if !found {
		return nil
	}
	for info := p.AuthInfo; info != nil; {
		if p, encrypted := info.(proof); encrypted {
			return checkProof(p, says)
		}
		wrapped, ok := info.(interface{ Unwrap() credentials.AuthInfo })
		if !ok {
			break
		}
		info = wrapped.Unwrap()
	}
	return nil
}

func checkProof(p proof, says string) error {
	switch id := p.NodeID(); id {
	case says:
		return nil
	case "":
		return fmt.Errorf("node %q has no certificate of a node", says)
	default:
		return fmt.Errorf("node %q has the certificate of node %q", says, id)
	}
}
