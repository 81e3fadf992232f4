package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds and times of the discovery of nodes.
const (
	maxNodes       = 256 // that one client is connected to
	discoverEvery  = 10 * time.Second
	discoverPause  = 250 * time.Millisecond // at least, between two times
	discoverWithin = time.Second            // for a node to answer
	retireGrace    = time.Second            // for what is under way to a node that left
)

// member is a node that the client is connected to, or tries to be.
type member struct {
	address string
	id      string // as another node said; "" for a seed, which may be any
	conns   []*conn
	stop    context.CancelFunc

	refusal atomic.Pointer[AccessError] // why it has refused this client last; nil if it has not

	mu      sync.Mutex
	problem error // why it cannot be asked; guarded by mu
}

var errConnecting = errors.New("not connected yet")

// nodeID is who the node said it is; "" if it has not been asked yet.
func (m *member) nodeID() string {
	for _, c := range m.conns {
		if id := c.nodeID.Load(); id != nil {
			return *id
		}
	}
	return ""
}

// setProblem notes why the member cannot be asked, or, with nil, that it can.
func (m *member) setProblem(problem error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.problem = problem
}

func (m *member) up() bool {
	return slices.ContainsFunc(m.conns, func(c *conn) bool { return c.up.Load() })
}

// addMember connects to a node. The caller holds c.mu.
func (c *Client) addMember(address, id string) error {
	m := &member{address: address, id: id, problem: errConnecting}
	for range c.connections {
		conn, err := connect(address, c.options, func(reason error) { c.note(m, reason) })
		if err != nil {
			return fmt.Errorf("client of %s: %w", address, err)
		}
		via := newConn(conn, id, c.live, func(err error) { c.changed(m, err) }, func(err error) { c.noteEnd(m, err) })
		via.member, via.identity, via.sawView = m, c.identity, c.sawView
		m.conns = append(m.conns, via)
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(c.stopped)
	for _, via := range m.conns {
		c.running.Go(func() {
			via.run(ctx)
			_ = via.channel.Close() // nothing is under way
		})
	}
	c.members[address] = m
	return nil
}

// retire leaves a node, when what is under way has had its time. The caller holds c.mu.
func (c *Client) retire(m *member) {
	delete(c.members, m.address)
	c.identity.forget(m)
	c.running.Go(func() {
		grace := time.NewTimer(retireGrace)
		defer grace.Stop()
		select {
		case <-grace.C:
		case <-c.stopped.Done():
		}
		m.stop()
	})
}

// publish makes the conns of all members available to pick. The caller holds c.mu.
func (c *Client) publish() {
	var conns []*conn
	for _, m := range c.sorted() {
		conns = append(conns, m.conns...)
	}
	c.conns.Store(&conns)
}

// sorted returns the members by address. The caller holds c.mu.
func (c *Client) sorted() []*member {
	var members []*member
	for _, address := range slices.Sorted(maps.Keys(c.members)) {
		members = append(members, c.members[address])
	}
	return members
}

// follow keeps up with the cluster until ctx ends.
func (c *Client) follow(ctx context.Context) {
	timer := time.NewTimer(discoverPause)
	defer timer.Stop()
	for again := discoverPause; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-c.rediscover:
			timer.Reset(discoverPause + rand.N(discoverPause)) // clients are not to march in step: a view is news to all
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			again = discoverPause
			select {
			case <-c.rediscover: // the list comes after it
			default:
			}
		}
		if c.list(ctx, again == discoverEvery) {
			again = discoverPause
			timer.Reset(discoverEvery*3/4 + rand.N(discoverEvery/2))
		} else {
			again = min(2*again, discoverEvery)
			timer.Reset(again*3/4 + rand.N(again/2))
		}
	}
}

// listSoon has the nodes listed after a short pause.
func (c *Client) listSoon() {
	select {
	case c.rediscover <- struct{}{}:
	default: // they are going to be
	}
}

// sawView is told by which view a node routes that has answered. In a later one than all before, there may be nodes that will soon be all that there are.
func (c *Client) sawView(number uint64) {
	newest := c.newest.Load()
	for ; number > newest; newest = c.newest.Load() {
		if c.newest.CompareAndSwap(newest, number) {
			if c.discover {
				c.listSoon()
			}
			break
		}
	}
	if number >= newest && !c.isCurrent.Load() {
		c.isCurrent.Store(true)
	}
}

// list lists the nodes, and connects to them. It reports whether that was all: a node may know of no view as late as another one, or not know yet whether a
// new member serves. IsLast says that it was tried for long: if no node has answered by as late a view meanwhile, there is none, as in a cluster that was
// founded again.
func (c *Client) list(ctx context.Context, isLast bool) (complete bool) {
	newest := c.newest.Load()
	list := c.listNodes(ctx, newest)
	if list == nil {
		return false
	}
	c.adopt(list.GetNodes())
	if isLast && !c.isCurrent.Swap(false) {
		c.newest.CompareAndSwap(newest, list.GetView())
	}
	return list.GetView() >= newest && !slices.ContainsFunc(list.GetNodes(), isNew)
}

// isNew reports whether a node is a member that is not known to serve yet.
func isNew(n *weirv1.Node) bool {
	return n.GetMember() && n.GetState() == weirv1.NodeState_NODE_STATE_JOINING
}

// listNodes asks one node after the other for all, until one knows them in the newest view. Else it returns what one of the latest view has said, nil if none
// has said anything.
func (c *Client) listNodes(ctx context.Context, newest uint64) (latest *weirv1.ListNodesResponse) {
	conns := *c.conns.Load()
	var asked []*member
	for _, i := range rand.Perm(len(conns)) {
		via := conns[i]
		if !via.usable(c.live.now()) || slices.Contains(asked, via.member) {
			continue
		}
		asked = append(asked, via.member)
		if list := listNodes(ctx, via.channel); list != nil && (latest == nil || list.GetView() > latest.GetView()) {
			latest = list
		}
		if latest != nil && latest.GetView() >= newest {
			break
		}
	}
	return latest
}

// listNodes returns nil if the node does not answer, or is no member of a view itself.
func listNodes(ctx context.Context, conn *grpc.ClientConn) *weirv1.ListNodesResponse {
	ctx, cancel := context.WithTimeout(ctx, discoverWithin)
	defer cancel()
	resp, err := weirv1.NewClusterClient(conn).ListNodes(ctx, &weirv1.ListNodesRequest{})
	if err != nil || !slices.ContainsFunc(resp.GetNodes(), (*weirv1.Node).GetMember) {
		return nil
	}
	return resp
}

// serves reports whether a node is to be asked.
func serves(n *weirv1.Node) bool {
	switch n.GetState() {
	case weirv1.NodeState_NODE_STATE_JOINING, weirv1.NodeState_NODE_STATE_LEAVING:
		return false
	case weirv1.NodeState_NODE_STATE_UNSPECIFIED, weirv1.NodeState_NODE_STATE_READY, weirv1.NodeState_NODE_STATE_LEFT:
	}
	return n.GetMember() && validAddress(n.GetAddress()) == nil
}

// adopt connects to the nodes that serve, and leaves those that do not. A seed stays,
// and stands for the node that it is: its address is known to work from here.
func (c *Client) adopt(nodes []*weirv1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := make(map[string]bool) // ids of seeds
	for _, m := range c.members {
		if m.id == "" && m.up() {
			known[m.nodeID()] = true
		}
	}
	wanted := make(map[string]string) // addresses to ids
	for _, n := range nodes {
		if serves(n) && !known[n.GetId()] && len(wanted)+len(c.seeds) < maxNodes {
			wanted[n.GetAddress()] = n.GetId()
		}
	}
	for address, m := range c.members {
		if m.id != "" && wanted[address] != m.id {
			c.retire(m)
		}
	}
	for address, id := range wanted {
		if c.members[address] == nil {
			_ = c.addMember(address, id) // fails for no address that validAddress accepts
		}
	}
	c.publish()
}
