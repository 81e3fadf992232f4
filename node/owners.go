package node

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/internal/topkeys"
)

// owners is what decides in the node's partitions: cluster.Ownership, or cluster.Owners with Network.Placements.
type owners interface {
	Deciders
	Register(grpc.ServiceRegistrar)
	Run(ctx context.Context)
	Become(incarnation uint64)
	Sought() bool
	Depart()
	Flush(ctx context.Context)

	HandoverStatus() cluster.HandoverStatus
	HandoverStatusOf(id string) cluster.HandoverStatus
	ReachedBy(id string) []string
	Unreached() []cluster.Unreached
	LoadOf(id string) cluster.Load
	Clocks() []cluster.ClockDifference
	Doubts() (missing, givenUp []cluster.Life)
	TopLists(ctx context.Context, q topkeys.Query) *cluster.TopLists
	OtherEvents(ctx context.Context) (events []cluster.Event, silent []string)
	OtherDecisions(ctx context.Context, since time.Time) (logs []*cluster.DecisionLog, missing []cluster.UnansweredMember)

	Save(p uint32, outlive time.Duration, buf []byte) (v cluster.SnapshotVersion, records []byte, counters int, ok bool)
	Restore(p uint32, v cluster.SnapshotVersion, records, grants []byte) error
	Forget()
	Undelivered(p uint32) []byte
}

// keepPlacements is keep for a node that decides by views which name the node that has each partition.
func (n *node) keepPlacements(params cluster.Params, c cluster.OwnershipConfig) {
	o := cluster.NewOwners(cluster.OwnersConfig{
		OwnershipConfig: c,
		Keep: func(v *view.View) {
			routing, err := cluster.RoutingView(v)
			if err != nil {
				return // Owners has adopted it, so there is none
			}
			n.state.Keep(func(k *etcd.Known) { k.View, k.Placement = routing, v })
		},
		Granted:  func() time.Time { return n.registry.Status().Granted },
		ReadView: func(ctx context.Context) (*view.View, error) { return n.registry.ReadPlacement(ctx) },
	}, params.Ring)
	n.ownership = o
	n.membership = cluster.NewViewWriter(cluster.NewMembership(n.opts.ID, params.Ring, n.registry, n.router, nil, o, n.log), o, n.registry)
	n.adoptKnown = func() { o.Adopt(n.state.Found().Placement) }
}
