package cluster

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// replicaClient carries messages about copies to other nodes. It implements ownership.Peers.
type replicaClient struct {
	// partitions is how many there are.
	partitions int
	// member returns the client of a life that the view names, and the caller as which it is called.
	member func(l view.Life) (peerv1.ReplicasClient, *peerv1.Caller, error)
	// reaches reports whether a node answers this one.
	reaches func(l view.Life) bool
	// reachesID reports whether some life of a node answers this one.
	reachesID func(id string) bool
	// hasEnded reports whether a life is known to have ended.
	hasEnded func(l view.Life) bool
	// relays returns maxFeedRelays members at most that this node reaches and that reach another one.
	relays func(l view.Life) []view.Life
	// isSilent says whether a life did not answer the last changes that this node has sent it directly.
	isSilent func(l view.Life) *atomic.Bool
	// heard is told the number of the view of a life that has answered.
	heard func(ctx context.Context, l view.Life, number uint64)
}

// Reaches implements ownership.Peers.
func (c *replicaClient) Reaches(l view.Life) bool { return c.reaches(l) }

// ReachesID implements ownership.Peers.
func (c *replicaClient) ReachesID(id string) bool { return c.reachesID(id) }

// HasEnded implements ownership.Peers.
func (c *replicaClient) HasEnded(l view.Life) bool { return c.hasEnded(l) }

// Feed implements ownership.Peers.
func (c *replicaClient) Feed(ctx context.Context, to view.Life, changes []*ownership.Changes, final <-chan struct{}) ([]ownership.Receipt, error) {
	_, caller, err := c.member(to)
	if err != nil {
		return nil, err
	}
	req := &peerv1.FeedRequest{Caller: caller}
	for _, m := range changes {
		req.Changes = append(req.Changes, wireChanges(m))
	}
	return c.feedAnyway(ctx, to, req, final)
}

// Post implements ownership.Peers.
func (c *replicaClient) Post(ctx context.Context, to view.Life, posts []ownership.Post) (answers []ownership.Posting, err error) {
	client, caller, err := c.member(to)
	if err != nil {
		return nil, err
	}
	resp, err := client.Post(ctx, &peerv1.PostRequest{Caller: caller, Posts: wirePosts(posts)})
	if err != nil {
		return nil, err
	}
	c.heard(ctx, to, resp.GetView())
	for _, a := range resp.GetAnswers() {
		answers = append(answers, ownership.Posting{Refused: a.GetRefused(), Added: a.GetAdded(), Safe: a.GetSafe(), Shared: a.GetShared()})
	}
	return answers, nil
}

// Hear implements ownership.Peers.
func (c *replicaClient) Hear(ctx context.Context, to view.Life) (posts []ownership.Post, adopted uint64, err error) {
	client, caller, err := c.member(to)
	if err != nil {
		return nil, 0, err
	}
	resp, err := client.Hear(ctx, &peerv1.HearRequest{Caller: caller})
	if err != nil {
		return nil, 0, err
	}
	c.heard(ctx, to, resp.GetView())
	posts, err = postsOf(resp.GetPosts(), c.partitions)
	return posts, resp.GetView(), err
}

// Ask implements ownership.Peers.
func (c *replicaClient) Ask(ctx context.Context, to view.Life, requests []ownership.Request) error {
	client, caller, err := c.member(to)
	if err != nil {
		return err
	}
	req := &peerv1.AskRequest{Caller: caller}
	for _, q := range requests {
		req.Requests = append(req.Requests, &peerv1.CopyRequest{Partition: q.Partition, Term: q.Term, Salvages: q.Salvages})
	}
	resp, err := client.Ask(ctx, req)
	if err == nil {
		c.heard(ctx, to, resp.GetView())
	}
	return err
}

// Versions implements ownership.Peers.
func (c *replicaClient) Versions(ctx context.Context, to view.Life, partitions []uint32) (versions []replica.Version, err error) {
	client, caller, err := c.member(to)
	if err != nil {
		return nil, err
	}
	resp, err := client.ListVersions(ctx, &peerv1.ListVersionsRequest{Caller: caller, Partitions: partitions})
	if err != nil {
		return nil, err
	}
	if len(resp.GetVersions()) != len(partitions) {
		return nil, fmt.Errorf("versions: %d of %d partitions", len(resp.GetVersions()), len(partitions))
	}
	c.heard(ctx, to, resp.GetView())
	for _, v := range resp.GetVersions() {
		versions = append(versions, versionOf(v))
	}
	return versions, nil
}
