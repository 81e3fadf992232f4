package cluster

import (
	"context"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/internal/topkeys"
)

// inquiries are what nodes ask each other for the people who look at a cluster. No check and no copy depends on them.
type inquiries struct {
	self    string // this node's id
	greeter *Greeter
	router  *Router
	members func() []*otherMember                  // the other members
	caller  func(c *otherMember) *peerv1.Caller    // this node, as it calls a member
	status  func() HandoverStatus                  // this node's own
	load    func() Load                            // likewise
	top     *topkeys.Recorder                      // as OwnersConfig.Top
	events  func(ctx context.Context) []Event      // as OwnersConfig.Events
	log     func(time.Time) (io.ReadCloser, error) // as OwnersConfig.Decisions

	sendsDecisions chan struct{} // has room for the streams of StreamDecisions
}

// member returns the member of that id, nil if there is none, or it is this node.
func (q *inquiries) member(id string) *otherMember {
	members := q.members()
	if i := slices.IndexFunc(members, func(c *otherMember) bool { return c.member.ID == id }); i >= 0 {
		return members[i]
	}
	return nil
}

// greet refuses a caller that is not the node that it says, one of another cluster, or one that means another node or a later incarnation of this one.
func (q *inquiries) greet(ctx context.Context, c *peerv1.Caller) error {
	if err := checkCall(ctx, c.GetId()); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if c.GetVersion() != connVersion {
		other := stranger{met: Identity{Cluster: c.GetCluster(), ID: c.GetId()}, address: c.GetAddress(), version: connVersionError{uint64(c.GetVersion())}}
		q.greeter.note(other)
		return status.Errorf(codes.FailedPrecondition, "this node speaks version %d of the protocol between nodes, and %s", connVersion, other.describe(q.greeter.Self()))
	}
	from := Identity{Cluster: c.GetCluster(), ID: c.GetId(), Incarnation: c.GetIncarnation()}
	if err := q.greeter.admit(from, Identity{Cluster: from.Cluster, ID: c.GetToId(), Incarnation: c.GetTo()}); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return nil
}

// UnansweredMember is a member that has not answered.
type UnansweredMember struct {
	ID string
	// Reason says why, as one sentence.
	Reason string
}

// reasonOf says why a member has not answered.
func reasonOf(err error) string {
	switch status.Code(err) {
	case codes.DeadlineExceeded:
		return "does not answer within " + topTimeout.String()
	case codes.Unimplemented:
		return "runs a version that keeps no lists of keys"
	}
	return status.Convert(err).Message()
}
