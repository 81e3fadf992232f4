package node

import (
	"context"
	"net"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// Network is what a node listens and dials on, and its observers. The zero value is TCP without observers.
// An etcd that the node runs itself is on TCP in any case.
type Network struct {
	// Listen listens at an address of Options.
	Listen func(ctx context.Context, address string) (net.Listener, error)
	// Dial connects to a node or to an etcd.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Wall reads the wall clock as the node starts; nil is time.Now.
	Wall func() time.Time
	// Waiting is called once if the node is complete except for what it waits for as long as it takes: the first rules of an
	// xDS server. The reason is a sentence. The parts say whether the node is stuck meanwhile.
	Waiting func(reason string, parts *Parts)
	// Built is called with what decides in the node's partitions before that begins its work.
	Built func(Deciders)
	// Local puts something between the node and its counters, which sees what is decided here for whom.
	Local func(cluster.Local) cluster.Local
	// Killed reports whether a node that ends does so as if it was killed, and writes no snapshot; nil is never.
	Killed func() bool
}

// Deciders says in which partitions a node decides, for observers.
type Deciders interface {
	// Deciding returns by partition the term in which the node decides at the moment, 0 where it does not.
	Deciding() []uint64
	// Worth says in a line what the node's counters of a partition are worth.
	Worth(p uint32) string
	// Newest returns the view by which the node routes, nil before the first.
	Newest() *cluster.View
}

// local returns what answers from counters.
func (n Network) local(counters cluster.Local) cluster.Local {
	if n.Local != nil {
		return n.Local(counters)
	}
	return counters
}

func (n Network) listen(ctx context.Context, address string) (net.Listener, error) {
	if n.Listen != nil {
		return n.Listen(ctx, address)
	}
	return new(net.ListenConfig).Listen(ctx, "tcp", address)
}

func (n Network) dial(ctx context.Context, address string) (net.Conn, error) {
	if n.Dial != nil {
		return n.Dial(ctx, address)
	}
	return (&net.Dialer{Control: limitUnacknowledged}).DialContext(ctx, "tcp", address)
}
