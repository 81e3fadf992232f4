package bench

import (
	"context"
	"fmt"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
)

// The kinds of callers.
const (
	Direct = "calls"  // each caller its own
	Client = "client" // package client, for all callers: it finds all nodes, and batches
	Leases = "leases" // the same, with lent tokens
)

// Vias returns all of them.
func Vias() []string { return []string{Direct, Client, Leases} }

// MaxClientConnections is the most connections of package client to each node.
const MaxClientConnections = 8

// timedLeases is how many checks from lent tokens there are to one that is measured.
const timedLeases = 16

// maxPrepared is how many keys' requests are made beforehand. Those of a distribution that
// prefers some keys prefers the first.
const maxPrepared = 1 << 16

// Shared is a client that all callers share. It is safe for concurrent use.
type Shared struct {
	via      string
	batch    bool
	client   *client.Client
	requests *Requests
	prepared []*weirv1.RateLimitRequest // by key; read-only
}

// NewShared returns a client of the cluster to which the targets belong, which asks in a
// mode: Unary or Batch. Its calls end by themselves after the timeout.
func NewShared(via, mode string, targets []string, a Access, connections int, timeout time.Duration, r *Requests, keys *Keys) (*Shared, error) {
	options := []client.Option{client.WithSeeds(targets[1:]...), client.WithConnections(connections), client.WithTimeout(timeout)}
	if a.TLS != nil {
		options = append(options, client.WithTLS(a.TLS))
	}
	if a.Token != "" {
		options = append(options, client.WithAccessToken(a.Token))
	}
	if via == Leases {
		options = append(options, client.WithLeases())
	}
	c, err := client.New(targets[0], options...)
	if err != nil {
		return nil, err
	}
	s := &Shared{via: via, batch: mode == Batch, client: c, requests: r}
	for key := range min(keys.n, maxPrepared) {
		s.prepared = append(s.prepared, r.native(key))
	}
	return s, nil
}

// Load has the client make the load's calls.
func (s *Shared) Load(l *Load) {
	l.Conns, l.Timeout = []Conn{s}, 0
	if s.via == Leases && l.Rate == 0 {
		l.Timed = timedLeases
	}
}

// Await returns when a node answers, or with an error.
func (s *Shared) Await(ctx context.Context) error {
	request := s.requests.native(0)
	request.Peek = true
	answer, err := s.client.Check(ctx, request)
	if err == nil && client.Undecided(answer) {
		err = fmt.Errorf("no node has answered the client in time")
	}
	return unlessBusy(err)
}

// Ask implements Conn.
func (s *Shared) Ask(ctx context.Context, keys []uint64) (Answers, error) {
	if !s.batch {
		answer, err := s.client.Check(ctx, s.request(keys[0]))
		if err != nil {
			return Answers{}, err
		}
		return count(answer), nil
	}
	requests := make([]*weirv1.RateLimitRequest, len(keys))
	for i, key := range keys {
		requests[i] = s.request(key)
	}
	answers, err := s.client.CheckBatch(ctx, requests)
	if err != nil {
		return Answers{}, err
	}
	return countAll(answers, len(keys))
}

func (s *Shared) request(key uint64) *weirv1.RateLimitRequest {
	if key < uint64(len(s.prepared)) {
		return s.prepared[key]
	}
	return s.requests.native(key)
}

// ClientReport is what a client has done.
type ClientReport struct {
	Nodes    int    `json:"nodes"`    // that it is connected to
	Answered uint64 `json:"answered"` // calls that a node answered; the others were decided from lent tokens
	Retried  uint64 `json:"retried"`  // of them, by a second node

	Lent      uint64 `json:"tokens_lent"`
	LentUsed  uint64 `json:"tokens_lent_used"`
	GivenBack uint64 `json:"tokens_given_back"`
}

// Close gives back what was lent, and returns what the client has done.
func (s *Shared) Close() *ClientReport {
	r := &ClientReport{}
	for _, n := range s.client.Stats().Nodes {
		if n.Problem == nil {
			r.Nodes++
		}
	}
	_ = s.client.Close() // nothing is under way
	stats := s.client.Stats()
	r.Answered, r.Retried = stats.Answered, stats.Retried
	r.Lent, r.LentUsed, r.GivenBack = stats.Lent, stats.LentUsed, stats.GivenBack
	return r
}
