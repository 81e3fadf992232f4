package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// outage is for how long checks wait for a node while there is none. After that they
// are answered at once, until a node is back.
const outage = time.Second

// ErrClosed says that the client was closed.
var ErrClosed = errors.New("client is closed")

// errFull says that a check was refused because too much waits for nodes that do answer.
var errFull = status.Error(codes.ResourceExhausted, "overloaded: too many checks of this client wait already for the nodes")

// Client asks all nodes of a cluster. It is safe for concurrent use, and one per process
// is enough. Make it with New, and Close it at the end.
type Client struct {
	options
	started    time.Time
	conns      atomic.Pointer[[]*conn]
	downSince  atomic.Int64  // when the last conn went down, by since; 0 while one is up
	rediscover chan struct{} // has room for one
	newest     atomic.Uint64 // the highest number of a view by which a node that has answered routes
	isCurrent  atomic.Bool   // whether one has answered by that view since list has looked
	live       *runClock     // of the silence of nodes
	calls      *callPool
	leases     *leaseTable // nil without WithLeases
	identity   *clusterIdentity
	stats      counters

	stopped context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	members map[string]*member // by address; guarded by mu
	seen    chan struct{}      // closed when a conn comes up or is refused, and replaced; guarded by mu
}

// New returns a client of the cluster to which the node at addr, as host:port, belongs.
// It begins to connect, and does not wait for that: so it fails only if addr or an
// option makes no sense. Connections are not encrypted.
func New(addr string, opts ...Option) (*Client, error) {
	o, err := readOptions(addr, opts)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", addr, err)
	}
	c := &Client{
		options: o, started: time.Now(), rediscover: make(chan struct{}, 1), live: newRunClock(), calls: newCallPool(),
		members: make(map[string]*member), seen: make(chan struct{}),
	}
	c.downSince.Store(c.since())
	c.identity = newClusterIdentity(o.cluster, c.downFor)
	c.stopped, c.stop = context.WithCancel(context.Background())
	if err := c.connectSeeds(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.running.Go(func() { c.live.run(c.stopped, c.anyDue) })
	if o.discover {
		c.running.Go(func() { c.follow(c.stopped) })
	}
	if o.withLeases {
		c.leases = newLeaseTable(c)
	}
	return c, nil
}

func (c *Client) connectSeeds() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.publish()
	for _, seed := range c.seeds {
		if c.members[seed] != nil {
			continue
		}
		if err := c.addMember(seed, ""); err != nil {
			return err
		}
	}
	return nil
}

// Close gives back what was lent, breaks off what is under way, and returns when all is
// at rest. Checks after it fail with ErrClosed.
func (c *Client) Close() error {
	if c.leases != nil {
		c.leases.close()
	}
	c.stop()
	c.running.Wait()
	return nil
}

// since is the client's clock: nanoseconds since it was made, above 0, by the monotonic
// clock.
func (c *Client) since() int64 { return int64(time.Since(c.started)) + 1 }

// downFor is for how long no node was up; 0 while one is.
func (c *Client) downFor() time.Duration {
	down := c.downSince.Load()
	if down == 0 {
		return 0
	}
	return time.Duration(c.since() - down)
}

// Check asks whether one request may go on, and counts it if so. Unless the request is
// invalid, the cluster overloaded, ctx canceled, or this client refused by all nodes (see AccessError), there is
// always an answer; Undecided tells whether it is that of a node. The answer may be shared with others: do not
// change it.
func (c *Client) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	if c.leases != nil && lendable(req) {
		return c.leases.check(ctx, req)
	}
	return c.check(ctx, req)
}

// check asks a node.
func (c *Client) check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	one := [1]*weirv1.RateLimitRequest{req}
	responses, err := c.ask(ctx, one[:], false)
	switch {
	case err != nil:
		return nil, err
	case responses == nil:
		return c.undecided(), nil
	}
	return responses[0], nil
}

// Wait returns when the request may go on, as the function Wait does.
func (c *Client) Wait(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return Wait(ctx, c, req)
}

// CheckBatch asks for up to 1000 independent requests at once. The answers stand
// in the order of the requests. One invalid request refuses the whole batch, and so does
// asking for none.
func (c *Client) CheckBatch(ctx context.Context, reqs []*weirv1.RateLimitRequest) ([]*weirv1.RateLimitResponse, error) {
	if len(reqs) == 0 { // a node would see that only of a batch that travels alone
		return nil, status.Error(codes.InvalidArgument, "requests: must not be empty")
	}
	responses, err := c.ask(ctx, reqs, true)
	if err == nil && responses == nil {
		responses = make([]*weirv1.RateLimitResponse, len(reqs))
		for i := range responses {
			responses[i] = c.undecided()
		}
	}
	return responses, err
}

// undecided is the client's own answer.
func (c *Client) undecided() *weirv1.RateLimitResponse { return clientAnswer(c.failClosed) }

// Node returns a node that the client is connected to, or else a seed, for calls that
// Client has no methods for. It need not be closed, and is of use until the client is.
func (c *Client) Node() *Node {
	via := c.pick(c.live.now(), nil)
	if via == nil {
		via = (*c.conns.Load())[0]
	}
	n := newNode(via.channel, DefaultTimeout)
	n.lent = true
	return n
}

// changed is told by a conn that it has come up, or why not.
func (c *Client) changed(m *member, problem error) {
	m.setProblem(problem)
	c.mu.Lock()
	defer c.mu.Unlock()
	if problem == nil {
		m.refusal.Store(nil)
		c.downSince.Store(0)
		c.wakeLocked()
	} else if c.downSince.Load() == 0 && !c.anyUp() {
		c.downSince.Store(c.since())
	}
	c.listSoon()
}

// anyDue reports whether a node owes an answer.
func (c *Client) anyDue() bool {
	return slices.ContainsFunc(*c.conns.Load(), func(c *conn) bool { return c.silent.Load() != 0 })
}

func (c *Client) anyUp() bool {
	for _, via := range *c.conns.Load() {
		if via.up.Load() {
			return true
		}
	}
	return false
}
