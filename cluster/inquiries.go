package cluster

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
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

// Bounds of a call to all members.
const (
	askAllTimeout = 500 * time.Millisecond // of the calls, which are made at the same time
	askAllMessage = 1 << 20                // bytes of one answer
)

// askAll asks all other members at the same time, and returns after askAllTimeout at the latest. It hands note each answer, one after the other, and returns the
// members that have not answered, sorted by id.
func askAll[A any](ctx context.Context, q *inquiries, ask func(context.Context, *otherMember) (A, error), note func(id string, answer A)) (unanswered []UnansweredMember) {
	ctx, cancel := context.WithTimeout(ctx, askAllTimeout)
	defer cancel()
	var mu sync.Mutex // guards unanswered, and what note keeps
	var asked sync.WaitGroup
	for _, c := range q.members() {
		asked.Go(func() {
			answer, err := ask(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				unanswered = append(unanswered, UnansweredMember{c.member.ID, reasonOf(err)})
				return
			}
			note(c.member.ID, answer)
		})
	}
	asked.Wait()
	slices.SortFunc(unanswered, func(a, b UnansweredMember) int { return strings.Compare(a.ID, b.ID) })
	return unanswered
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
		return "does not answer within " + askAllTimeout.String()
	case codes.Unimplemented:
		return "runs a version that keeps no lists of keys"
	}
	return status.Convert(err).Message()
}
