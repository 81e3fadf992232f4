package apitest

import (
	"context"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Node is a decider with a shard of its own.
type Node struct {
	Shard *shard.Shard
	// Silent says for which takes no node answers; nil is none.
	Silent func(shard.Take) bool
	// Source is the node that answers, if not the owner.
	Source shard.Source
	// Delay is how long it takes until the answers are known. It needs a bubble.
	Delay time.Duration
}

// Owner returns the id of the node that owns a counter.
func (n Node) Owner(ring.Key) string { return "here" }

// Standby returns the id of the node that has a copy of a counter.
func (n Node) Standby(ring.Key) string { return "there" }

// HasTime implements api.Decider.
func (n Node) HasTime([]shard.Take, int) bool { return true }

// Decide answers groups. Like a router, it asks only nodes that answer.
func (n Node) Decide(_ context.Context, groups []shard.Group) {
	if n.Delay > 0 {
		<-time.After(n.Delay)
	}
	if n.Silent == nil {
		n.Shard.Decide(groups)
		for i := range groups {
			for j := range groups[i].Takes {
				groups[i].Takes[j].Source = max(n.Source, shard.Owner)
			}
		}
		return
	}
	for i := range groups {
		g := &groups[i]
		asked := []shard.Group{{Peek: g.Peek, Reset: g.Reset}}
		var index []int
		for j, take := range g.Takes {
			if !n.Silent(take) {
				asked[0].Takes = append(asked[0].Takes, take)
				index = append(index, j)
			}
		}
		n.Shard.Decide(asked)
		for k, j := range index {
			g.Takes[j] = asked[0].Takes[k]
		}
		g.Allowed = asked[0].Allowed
	}
}
