package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// unanswered is a node that does not answer.
type unanswered struct{ peerv1.ReplicasClient }

func (unanswered) Feed(ctx context.Context, _ *peerv1.FeedRequest, _ ...grpc.CallOption) (*peerv1.FeedResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (unanswered) RelayFeed(ctx context.Context, _ *peerv1.RelayFeedRequest, _ ...grpc.CallOption) (*peerv1.RelayFeedResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Changes for a node that does not answer go through others, the next one if the first does not answer either, once a final state is due.
func TestChangesGoThroughOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := replicaNodes(t, "a", "b", "c", "d")
		life := func(id string) view.Life { return nodes[id].Self }
		peers := nodes["a"].peers
		member := peers.member
		peers.member = func(l view.Life) (peerv1.ReplicasClient, *peerv1.Caller, error) {
			client, caller, err := member(l)
			if l.ID == "b" || l.ID == "c" {
				client = unanswered{client}
			}
			return client, caller, err
		}
		peers.relays = func(view.Life) []view.Life { return []view.Life{life("c"), life("d")} }
		v := &view.View{Number: 2, Partitions: make([]view.Partition, replicaRing.Partitions)}
		for id := range nodes {
			v.Members = append(v.Members, view.Member{Life: life(id), Address: id + ":1", State: view.Ready})
		}
		slices.SortFunc(v.Members, func(a, b view.Member) int { return strings.Compare(a.ID, b.ID) })
		for p := range v.Partitions {
			v.Partitions[p] = view.Partition{Owner: life("b"), Term: 2, Standby: life("a"), Predecessors: []view.Life{life("a")}}
		}
		nodes["b"].Adopt(v)
		index := uint64(0)
		feed := func(final <-chan struct{}) (took time.Duration, err error) {
			index++
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			m := &ownership.Changes{Partition: 3, Session: 1, Index: index, Version: replica.Version{Term: 1, Sequence: index}, Complete: true}
			receipts, err := peers.Feed(ctx, life("b"), []*ownership.Changes{m}, final)
			if err == nil && (len(receipts) != 1 || receipts[0] != ownership.Taken) {
				t.Errorf("receipts %v", receipts)
			}
			if got := nodes["b"].Versions([]uint32{3})[0]; err == nil && got != m.Version {
				t.Errorf("version %v after %v was taken", got, m.Version)
			}
			return time.Since(began), err
		}
		due := make(chan struct{})
		close(due)
		for _, step := range []struct {
			name  string
			final chan struct{}
			takes time.Duration
			fails bool
		}{
			{"a final state is due", due, 2 * relayFeedAfter, false},
			{"it did not answer last", due, relayFeedAfter, false},
			{"no final state is due", make(chan struct{}), 500 * time.Millisecond, true},
		} {
			if took, err := feed(step.final); (err != nil) != step.fails || took != step.takes {
				t.Errorf("%s: %v after %s, want that after %s", step.name, err, took, step.takes)
			}
		}
	})
}

// What a node passes on is not passed on again.
func TestFeedsAreRelayedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := replicaNodes(t, "a", "b", "c")
		for name, tc := range map[string]struct {
			sender string
			code   codes.Code
		}{
			"its own":       {"a", codes.OK},
			"another one's": {"c", codes.InvalidArgument},
		} {
			_, err := nodes["c"].client.RelayFeed(t.Context(), &peerv1.RelayFeedRequest{
				Caller: &peerv1.Caller{Id: "a", Incarnation: 1}, Sender: &peerv1.Life{Id: tc.sender, Incarnation: 1}, Receiver: wireLife(nodes["b"].Self),
			})
			if status.Code(err) != tc.code {
				t.Errorf("%s: %v, want %v", name, err, tc.code)
			}
		}
	})
}
