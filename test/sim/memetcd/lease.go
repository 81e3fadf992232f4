package memetcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Times of leases, as the embedded etcd has them.
const (
	minTTL      = 1                      // seconds; a shorter lease is made as long
	maxTTL      = 9_000_000_000          // seconds
	expireEvery = 500 * time.Millisecond // between looks for leases that are over
	// A new leader gives every lease its whole time again, and the time of an election.
	electionTimeout = 250 * time.Millisecond
)

// lease is guarded as the store is.
type lease struct {
	id, ttl int64 // ttl in seconds
	expiry  time.Time
	keys    map[string]struct{}
	revoked chan struct{} // closed when it is
}

func (l *lease) refresh(more time.Duration) {
	l.expiry = time.Now().Add(time.Duration(l.ttl)*time.Second + more)
}

func (l *lease) left() time.Duration { return time.Until(l.expiry) }

func (s *store) grant(id, ttl int64) (*lease, error) {
	switch {
	case ttl > maxTTL:
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	case s.leases[id] != nil:
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	l := &lease{id: id, ttl: max(ttl, minTTL), keys: make(map[string]struct{}), revoked: make(chan struct{})}
	l.refresh(0)
	s.leases[id] = l
	return l, nil
}

func (s *store) attach(kv *keyValue) {
	if l := s.leases[kv.Lease]; l != nil {
		l.keys[string(kv.Key)] = struct{}{}
	}
}

func (s *store) detach(kv *keyValue) {
	if l := s.leases[kv.Lease]; l != nil {
		delete(l.keys, string(kv.Key))
	}
}

// promote is what a new leader does with the leases.
func (s *store) promote() {
	for _, l := range s.leases {
		l.refresh(electionTimeout)
	}
}

// expire revokes what is over, until ctx ends. Nothing is over while there is no leader,
// or while the server is paused.
func (s *Server) expire(ctx context.Context) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.gate.pass(ctx.Done()) != nil {
			return
		}
		s.mu.Lock()
		if s.hasLeaderLocked() {
			for _, l := range s.store.leases {
				if l.left() <= 0 {
					u := &update{store: s.store}
					u.revoke(l)
					s.notifyLocked(u.commit())
				}
			}
		}
		s.mu.Unlock()
	}
}

// renew returns the TTL of a lease that now begins again, 0 if there is none. A lease
// that is over but still there cannot be saved.
func (s *Server) renew(ctx context.Context, id int64) (ttl int64, err error) {
	if err := s.awaitLeader(ctx); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.store.leases[id]
	if l != nil && l.left() <= 0 {
		s.mu.Unlock()
		select {
		case <-l.revoked:
		case <-ctx.Done():
		}
		s.mu.Lock()
		return 0, ctx.Err()
	}
	if l == nil {
		return 0, nil
	}
	l.refresh(0)
	return l.ttl, nil
}
