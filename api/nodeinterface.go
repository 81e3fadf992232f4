package api

import (
	"context"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Status is what a node knows of itself and its cluster. All methods are safe for
// concurrent use, and all but Remove, ImportView and TopLists answer at once.
type Status interface {
	// Self is what the node says of itself.
	Self() cluster.Node
	// Cluster is the fingerprint of the cluster, 16 hexadecimal digits.
	Cluster() string
	// Ready reports whether the node is a member of its view and serves.
	Ready() bool
	// View is what the node routes by, nil before the first.
	View() *cluster.View
	// Nodes are the nodes that have a key in etcd, as last seen, sorted by id.
	Nodes() []cluster.Node
	// Reaches reports whether a member answers this node.
	Reaches(id string) bool
	// Unreached are the nodes that would be members, and that too few members reach, sorted by id.
	Unreached() []cluster.Unreached
	// EtcdReachable reports whether etcd answered the last time.
	EtcdReachable() bool
	// HandoverStatus says how far the handover of partitions is on a node, as last heard; of one that
	// nothing was heard of it is zero.
	HandoverStatus(id string) cluster.HandoverStatus
	// Drain has the node hand over what it holds, or take partitions again. The error says
	// why it does not.
	Drain(cancel bool) error
	// Remove takes a dead member out of the view, and returns the view that was written. The error is
	// cluster.ErrNoMember, ErrReached or ErrLastMember, wrapped, if that is why it does not.
	Remove(ctx context.Context, id string) (*cluster.View, error)
	// ImportView writes what the node knows of the cluster into an etcd that has lost it, or
	// says what it would write. The error is ErrNothingLost, wrapped, if it has not.
	ImportView(ctx context.Context, dryRun bool) (*weirv1.ImportViewResponse, error)
	// TopLists asks all members which keys clients have asked them for most, for half a second at most. Nil: this node
	// keeps no lists.
	TopLists(ctx context.Context, q topkeys.Query) *cluster.TopLists
	// Options are those with which the node runs, defaults included and secrets left out.
	Options() []*weirv1.Option
	// Rules are the rules in use.
	Rules() *rules.Set
	// Counters is how many counters live on this node.
	Counters() int
	// Problems says what an operator should look at, one sentence each.
	Problems() []string
}
