package client

import (
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Stats says what a client has done since it was made. A batch counts as one check.
type Stats struct {
	Answered   uint64 // checks that a node answered
	Undecided  uint64 // checks that no node answered in time
	Overloaded uint64 // checks that failed because a node, or this client, had too much to do
	Retried    uint64 // checks that were sent to a second node

	// Of leases, in tokens: what nodes have lent, what checks have taken of that, and
	// what was given back.
	Lent, LentUsed, GivenBack uint64

	Nodes []NodeStats // sorted by address
}

// NodeStats says how a client stands with one node.
type NodeStats struct {
	Address string
	ID      string // "" until it was reached
	Problem error  // why it is not asked, an *AccessError if it has refused this client last; nil if it is asked
}

// counters are the parts of Stats.
type counters struct {
	answered, undecided, overloaded, retried, lent, lentUsed, givenBack atomic.Uint64
}

// failed counts what a node has answered, if err is nil, or why not.
func (s *counters) failed(err error) {
	switch {
	case err == nil:
		s.answered.Add(1)
	case !errors.Is(err, errBroken) && status.Code(err) == codes.ResourceExhausted:
		s.overloaded.Add(1)
	}
}

// Stats returns what the client has done up to now.
func (c *Client) Stats() Stats {
	s := Stats{
		Answered: c.stats.answered.Load(), Undecided: c.stats.undecided.Load(),
		Overloaded: c.stats.overloaded.Load(), Retried: c.stats.retried.Load(),
		Lent: c.stats.lent.Load(), LentUsed: c.stats.lentUsed.Load(), GivenBack: c.stats.givenBack.Load(),
	}
	if c.leases != nil {
		s.LentUsed += c.leases.inUse()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.sorted() {
		m.mu.Lock()
		n := NodeStats{Address: m.address, ID: m.nodeID(), Problem: m.problem}
		m.mu.Unlock()
		if refusal := m.refusal.Load(); n.Problem != nil && refusal != nil {
			n.Problem = refusal
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}
