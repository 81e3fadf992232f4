package ownership

import (
	"context"
	"log/slog"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// Config says what a Node works with. Every field is required.
type Config struct {
	// Self is this life of the node.
	Self view.Life
	// Shard has the counters. All of its partitions are sealed at first.
	Shard *shard.Shard
	// Partitions is how many there are.
	Partitions int
	// Plan returns where the ring wants the partitions of a view.
	Plan func(v *view.View) view.Plan
	// Peers carries messages to other nodes.
	Peers Peers
	// Reports returns what is known of all nodes, newest first of each.
	Reports func() view.Reports
	// IsGone reports whether the etcd lease of a life was gone at some moment after the view of that number was written.
	IsGone func(l view.Life, number uint64) bool
	// HasSaidFarewell reports whether a life has said that it has ended to decide, for good. It is called with locks held.
	HasSaidFarewell func(l view.Life) bool
	// StandIns returns by partition the life that stands in for an owner that has said farewell, or for all that may have a copy, the zero value for none; nil if
	// there are none at all.
	StandIns func() []view.Life
	// Attest is called before the node looks at the clock, many times a second: what etcd has granted and renewed is told meanwhile.
	Attest func()
	// Observer is told what becomes of partitions.
	Observer Observer
	Logger   *slog.Logger
}

// Move says how a node has begun or ceased to decide in a partition.
type Move uint8

// The ways.
const (
	HandedOver Move = iota // it ceases, and gives its final state to the next owner
	Displaced              // it ceases, as the view does not name it as a member any more
	Received               // it begins, with the final state of its predecessor
	Continued              // it begins with its copy, as its predecessor has ended
)

// Observer is told what becomes of a node's partitions. The methods are called with the partition's lock held.
type Observer interface {
	// Opened is called before a partition decides: what was promised about its counters is void.
	Opened(p uint32)
	// Moved is called when this node begins or ceases to decide in a partition.
	Moved(how Move)
	// Added is called when grants of another node were added to that many counters.
	Added(counters int)
	// Followed is called when this node begins to feed another standby: the zero value for none.
	Followed(p uint32, standby view.Life)
	// Begin begins a round of a partition: all that was granted before is among the changes that are collected after it. It returns the
	// round's number, 0 if nothing waits for it.
	Begin(p uint32) uint64
	// Acknowledged says that the standby has all changes of a round, of which it was sent the last then.
	Acknowledged(p uint32, round uint64, sent time.Time)
}

// Peers carries messages to other nodes, one call each. It adds who the sender is and the number of its view: a node that hears of a newer
// view than its own fetches it, which is no matter of this package.
type Peers interface {
	// Feed sends changes. There is one receipt for each. They may arrive several times. Final is closed once a final state is due to that node: then they are urgent.
	Feed(ctx context.Context, to view.Life, changes []*Changes, final <-chan struct{}) ([]Receipt, error)
	// Post sends deltas to an owner. There is one answer for each.
	Post(ctx context.Context, to view.Life, posts []Post) (answers []Posting, err error)
	// Hear asks a node for all of its deltas of partitions that the caller owns, or is the standby of, and for the number of the view that it has adopted.
	Hear(ctx context.Context, to view.Life) (posts []Post, adopted uint64, err error)
	// Ask asks a node for copies.
	Ask(ctx context.Context, to view.Life, requests []Request) error
	// Versions asks a node which copies it has of partitions, the zero version for none.
	Versions(ctx context.Context, to view.Life, partitions []uint32) ([]replica.Version, error)
	// Reaches reports whether a node answers this one.
	Reaches(l view.Life) bool
	// ReachesID reports whether some life of a node answers this one.
	ReachesID(id string) bool
	// HasEnded reports whether a life is known to have ended: a later one has its id.
	HasEnded(l view.Life) bool
}
