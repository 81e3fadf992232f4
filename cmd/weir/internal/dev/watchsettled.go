package dev

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// changed says that a command has changed the cluster: what was seen before does not count.
func (c *Cluster) changed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.settled = ""
}

// watch looks at the nodes until the cluster is closed, and tells when it has settled.
func (c *Cluster) watch() {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-c.ends:
			return
		case <-look.C:
		}
		c.mu.Lock()
		changes := c.changes
		c.mu.Unlock()
		text := c.look()
		c.mu.Lock()
		news := changes == c.changes && text != c.settled
		if news {
			c.settled = text
			close(c.told)
			c.told = make(chan struct{})
		}
		c.mu.Unlock()
		if news && text != "" {
			c.cfg.Tell(text)
		}
	}
}

// Wait waits until the cluster has settled: all nodes that run, and are not cut from all others, are the members of one
// view, reach each other, and own all partitions.
func (c *Cluster) Wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		c.mu.Lock()
		settled, told := c.settled, c.told
		c.mu.Unlock()
		if settled != "" {
			return nil
		}
		select {
		case <-told:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("the cluster has not settled in %v: see nodes, and log NODE", startPatience)
			}
			return ctx.Err()
		}
	}
}

// look says how the cluster has settled, and nothing while it changes.
func (c *Cluster) look() string {
	var expected, absent []string
	var asked []*process
	for _, n := range c.nodes {
		if n.now() == Runs && len(c.cutFrom(n)) < len(c.nodes) { // all other nodes and etcd
			expected = append(expected, n.name)
			asked = append(asked, n)
		} else {
			absent = append(absent, n.name)
		}
	}
	if len(expected) == 0 {
		return ""
	}
	views := make([]uint64, len(asked))
	var all sync.WaitGroup
	for i, n := range asked {
		all.Go(func() { views[i] = c.viewOf(n, expected) })
	}
	all.Wait()
	if slices.Min(views) == 0 || slices.Min(views) != slices.Max(views) {
		return ""
	}
	if len(absent) == 0 {
		return fmt.Sprintf("whole: %d of %d nodes are members, view %d", len(expected), len(c.nodes), views[0])
	}
	return fmt.Sprintf("settled without %s: %d of %d nodes are members, view %d", strings.Join(absent, ", "), len(expected), len(c.nodes), views[0])
}

// viewOf returns the number of the view of a node, and 0 if its members are not the expected ones or partitions move.
func (c *Cluster) viewOf(n *process, expected []string) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), listPatience)
	defer cancel()
	response, err := c.clients[n.name].ListNodes(ctx)
	if err != nil {
		return 0
	}
	members := 0
	for _, m := range response.GetNodes() {
		if !m.GetMember() {
			continue
		}
		members++
		unreached := !m.GetReachable() && !c.proxy.IsCut(n.name, m.GetId())
		if !slices.Contains(expected, m.GetId()) || unreached || isMoving(m) {
			return 0
		}
	}
	if members != len(expected) {
		return 0
	}
	return response.GetView()
}

func isMoving(m *weirv1.Node) bool {
	return m.GetState() != weirv1.NodeState_NODE_STATE_READY || m.GetWanted() > 0 || m.GetLeaving() > 0
}
