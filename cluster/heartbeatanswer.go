package cluster

import (
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/replica"
)

// memberStatus is what a member has said of itself last, in answer to a heartbeat. The zero value is that of one that has not answered.
type memberStatus struct {
	mu       sync.Mutex
	handover HandoverStatus // guarded by mu
	load     Load           // guarded by mu
	reaches  []string       // the members that it reaches; guarded by mu
	replaced []string       // the members of which it reaches another life; guarded by mu
	lost     []string       // the members that have not answered it for a while, although they did before; guarded by mu
	justLost []string       // the members that have not for less than that; guarded by mu
	heard    time.Time      // when it was asked for that; guarded by mu
	ahead    time.Duration  // by how much its clock is ahead of this node's at least, negative if it is behind; guarded by mu
	compared time.Time      // when that was found, zero if never; guarded by mu
}

// note records an answer to a heartbeat that was sent then.
func (s *memberStatus) note(resp *peerv1.HeartbeatResponse, sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reaches, s.replaced, s.lost, s.justLost, s.heard = resp.GetReaches(), resp.GetReplaced(), resp.GetLost(), resp.GetJustLost(), sent
	s.handover = HandoverStatus{Active: int(resp.GetActive()), Wanted: int(resp.GetWanted()), Leaving: int(resp.GetLeaving()), State: stateOf(resp.GetState())}
	s.load = loadOf(resp.GetLoad(), sent)
}

// stateOf is the state that a member has named in a heartbeat. One of an older version names none, and is Ready as far as
// its registration says nothing else.
func stateOf(named string) State {
	if s := State(named); s == Joining || s == Leaving {
		return s
	}
	return Ready
}

// reachesLately reports whether the member has said in the last replica.LeaseTime that it reaches the one of that id, and not before an instant.
func (s *memberStatus) reachesLately(id string, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.heard) < replica.LeaseTime && !s.heard.Before(since) && slices.Contains(s.reaches, id)
}

// reachesOtherLifeLately reports whether the member has said in the last replica.LeaseTime that it reaches another life of the one of that id.
func (s *memberStatus) reachesOtherLifeLately(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.heard) < replica.LeaseTime && slices.Contains(s.replaced, id)
}

// justLostLately reports whether the member has said in the last replica.LeaseTime that the one of that id has not answered it for less than lastResortAfter.
func (s *memberStatus) justLostLately(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.heard) < replica.LeaseTime && slices.Contains(s.justLost, id)
}

// lostLately returns the members that the member has said to have lost, and whether that was in the last replica.LeaseTime.
func (s *memberStatus) lostLately() (ids []string, lately bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost, time.Since(s.heard) < replica.LeaseTime
}

// missesLately reports whether the member has said in the last replica.LeaseTime which members it reaches, and the one of that id was not among them.
func (s *memberStatus) missesLately(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.heard) < replica.LeaseTime && !slices.Contains(s.reaches, id)
}

// heardSince reports whether the member has answered a heartbeat that was sent after an instant.
func (s *memberStatus) heardSince(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.heard.Before(at)
}
