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
	answer   *peerv1.HeartbeatResponse // without what it says of others in Reports, Findings and Farewells; read-only; guarded by mu
	heard    time.Time                 // when it was asked for that; guarded by mu
	ahead    time.Duration             // by how much its clock is ahead of this node's at least, negative if it is behind; guarded by mu
	compared time.Time                 // when that was found, zero if never; guarded by mu
}

// note keeps an answer to a heartbeat that was sent then.
func (s *memberStatus) note(answer *peerv1.HeartbeatResponse, sent time.Time) {
	answer.Reports, answer.Findings, answer.Farewells = nil, nil, nil // these were heard, and are long
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer, s.heard = answer, sent
}

// last returns the last answer, and when it was asked for; nil and the zero time if there is none.
func (s *memberStatus) last() (answer *peerv1.HeartbeatResponse, heard time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer, s.heard
}

// lately returns the last answer, nil if it was not asked for in the last replica.LeaseTime.
func (s *memberStatus) lately() *peerv1.HeartbeatResponse {
	answer, heard := s.last()
	if time.Since(heard) >= replica.LeaseTime {
		return nil
	}
	return answer
}

// reachesLately reports whether the member has said in the last replica.LeaseTime that it reaches the one of that id, and not before an instant.
func (s *memberStatus) reachesLately(id string, since time.Time) bool {
	said, heard := s.last()
	return time.Since(heard) < replica.LeaseTime && !heard.Before(since) && slices.Contains(said.GetReaches(), id)
}

// missesLately reports whether the member has said in the last replica.LeaseTime which members it reaches, and the one of that id was not among them.
func (s *memberStatus) missesLately(id string) bool {
	said := s.lately()
	return said != nil && !slices.Contains(said.GetReaches(), id)
}

// compare records the clock of a member, as aheadOf reads it.
func (s *memberStatus) compare(clock, asked, answered int64) {
	if clock == 0 {
		return // an older version
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compared, s.ahead = time.Now(), aheadOf(clock, asked, answered)
}
