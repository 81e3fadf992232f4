package cluster

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
)

// A member whose etcd lease lives may be unreachable: its port is blocked, its cable is out, its process is stopped, or another node has its address. A
// member that finds so for accuseAfter accuses it in its heartbeats. Once a majority of the members does, the writer of views ends its etcd lease, and
// drops it as one that is gone.

const (
	accuseAfter = 5 * time.Second // of not being reached; and how long the accuser must have run, with an etcd lease that was renewed
	renewedFor  = 2 * time.Second // how long a renewal counts there, and how far two looks may be apart
)

// suspect is a member that does not answer this node.
type suspect struct {
	member  Member
	trying  bool
	since   time.Time // when the first try began of those that have failed in a row, zero if the last one has not
	foundAt time.Time // when the last try ended
	silent  bool      // the last try has failed for no other reason than that no answer came
}

// outcome is what a try to reach a member says about that member.
type outcome int

const (
	unclear outcome = iota // it was reached, or the try says nothing about it
	refused                // its address refuses connections, or another node answers there
	silent                 // no answer came that is its own
)

// outcomeOf returns what a try says that has ended with err after so long. A try that fails for want of something on this node does not count, nor
// one that took longer than it may: then this node itself did not run, and the answer may have come in time.
func outcomeOf(err error, took time.Duration) outcome {
	is := func(target error) bool { return errors.Is(err, target) }
	var stranger strangerError
	switch {
	case err == nil, errors.Is(err, context.Canceled), slices.ContainsFunc(ownFaults, is):
		return unclear
	case errors.Is(err, syscall.ECONNREFUSED), errors.As(err, &stranger):
		return refused
	case took > connectTimeout+replica.SuspendAfter:
		return unclear
	}
	return silent
}

// ownFaults are errors of a node that cannot open a connection to any other.
var ownFaults = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL}

// suspicion is which members this node does not reach. admission.mu guards it.
type suspicion struct {
	renewed   func() time.Time // when the last renewal of this node's etcd lease was sent that succeeded; is called without mu
	suspected map[Life]*suspect
	looked    time.Time // when this node has looked last
	steady    time.Time // since when it has done so all the time, with an etcd lease
}

// dueSuspects looks which members do not answer this node, and returns those that are to be tried now.
func (a *admission) dueSuspects() (due []*suspect) {
	renewed, now := a.renewed(), time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.steady.IsZero() || now.Sub(a.looked) >= renewedFor || now.Sub(renewed) >= renewedFor {
		a.steady = now
	}
	a.looked = now
	old := a.suspected
	a.suspected = make(map[Life]*suspect)
	if !a.view.IsMember(a.self) {
		return nil
	}
	for _, m := range a.view.Members {
		if m.ID == a.self || m.Leaving || a.reaches(m.ID) || len(a.suspected) == maxCandidate {
			continue
		}
		s := old[m.life()]
		if s == nil || s.member.Address != m.Address {
			s = &suspect{member: m}
		}
		a.suspected[m.life()] = s
		if !s.trying {
			s.trying = true
			due = append(due, s)
		}
	}
	return due
}

// suspect tries to reach a member.
func (a *admission) suspect(ctx context.Context, s *suspect) {
	began := time.Now()
	_, err := a.greeter.Knock(ctx, a.dial, s.member)
	now := time.Now()
	found := outcomeOf(err, now.Sub(began))
	a.mu.Lock()
	defer a.mu.Unlock()
	s.trying, s.foundAt, s.silent = false, now, found == silent
	switch {
	case found == unclear:
		s.since = time.Time{}
	case s.since.IsZero():
		s.since = began
	}
}

// answered records that a member has answered a heartbeat: it is not silent, however slow its connections are.
func (a *admission) answered(l Life) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.suspected[l]; s != nil && s.silent {
		s.since = time.Time{}
	}
}

// accusesLocked returns the members that this node accuses.
func (a *admission) accusesLocked(now time.Time) (accused []Life) {
	if now.Sub(a.looked) >= renewedFor || now.Sub(a.steady) < accuseAfter {
		return nil
	}
	for l, s := range a.suspected {
		if !s.since.IsZero() && now.Sub(s.since) >= accuseAfter && now.Sub(s.foundAt) < reportKnown {
			accused = append(accused, l)
		}
	}
	return accused
}

// Accused implements Electorate: it returns the members that a majority of the members that stay accuses. Two members never are one.
func (a *admission) Accused() map[Life][]string {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.view == nil {
		return nil
	}
	own, accused := a.accusesLocked(now), make(map[Life][]string)
	for _, m := range a.view.Members {
		var accusers []string
		for _, by := range a.view.Members {
			r := a.reports[by.ID]
			heard := r.findings[m.life()].accused && now.Sub(r.at) < reportKnown
			if by.ID != m.ID && !by.Leaving && (heard || by.ID == a.self && slices.Contains(own, m.life())) {
				accusers = append(accusers, by.ID)
			}
		}
		if 2*len(accusers) > staying(a.view.Members) {
			accused[m.life()] = accusers
		}
	}
	return accused
}
