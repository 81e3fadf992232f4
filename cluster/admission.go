package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// A node that is ready becomes a member only after members have reached it: under its id and incarnation, at the address that it
// advertises. Every member tries that by itself, and says in its heartbeats what came of it. The writer of views counts the reports.

// Times and bounds of admission.
const (
	knockEvery   = 500 * time.Millisecond // at each candidate
	reportKnown  = 2 * time.Second        // how long a report of a member counts
	lackNamed    = 2 * time.Second        // for which a candidate is not reached before that is named
	maxCandidate = 64                     // candidates at a time: the first by id
	maxReason    = 200                    // bytes of why a candidate is not reached
)

// finding says whether a node reaches a candidate, and else why not.
type finding struct {
	reached bool
	reason  string
	accused bool          // it is a member, and was not reached for accuseAfter
	ahead   time.Duration // by how much its clock is ahead of the finder's, if it is reached
}

// report is what a member has said last of the candidates.
type report struct {
	at       time.Time
	findings map[Life]finding
}

// candidate is a node that is ready and no member of the view, at least not at its address.
type candidate struct {
	node    Node
	since   time.Time // when it was first seen, or members were last known to reach it
	trying  bool      // this node is just trying to reach it
	tried   bool      // it has at least once
	found   finding   // the last time
	foundAt time.Time
	logged  bool // that it is not reached
}

// admission keeps which candidates the members reach. It is safe for concurrent use.
type admission struct {
	self    string
	greeter *Greeter
	dial    func(ctx context.Context, address string) (net.Conn, error)
	reaches func(id string) bool // a member answers this node
	log     *slog.Logger
	kick    chan struct{} // its slot is filled when there are other candidates
	suspicion

	mu         sync.Mutex
	view       *View
	nodes      []Node
	candidates map[Life]*candidate // guarded by mu; <= maxCandidate
	reports    map[string]report   // by id of the member; guarded by mu; of members of view only
}

func newAdmission(self string, g *Greeter, dial func(context.Context, string) (net.Conn, error), reaches func(string) bool, renewed func() time.Time, log *slog.Logger) *admission {
	return &admission{
		self: self, greeter: g, dial: dial, reaches: reaches, log: log, kick: make(chan struct{}, 1),
		candidates: make(map[Life]*candidate), reports: make(map[string]report),
		suspicion: suspicion{renewed: renewed, suspected: make(map[Life]*suspect)},
	}
}

// isCandidate reports whether a node needs to be admitted to v. One that was restarted and has kept its address does not: it was reached
// there, and what it has owned waits for it.
func isCandidate(v *View, n Node) bool {
	if v == nil || n.State != Ready {
		return false
	}
	i, member := v.Index(n.ID)
	return !member || v.Members[i].Address != n.Address
}

// Consider implements Electorate: it records the view and the nodes as the registry has them.
func (a *admission) Consider(v *View, nodes []Node) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.candidates
	a.view, a.nodes, a.candidates = v, nodes, make(map[Life]*candidate)
	for _, n := range nodes {
		if !isCandidate(v, n) || len(a.candidates) == maxCandidate {
			continue
		}
		l := n.Member().life()
		if c := old[l]; c != nil && c.node.Address == n.Address {
			a.candidates[l] = c
			continue
		}
		a.candidates[l] = &candidate{node: n, since: now}
		fill(a.kick)
	}
	maps.DeleteFunc(a.reports, func(id string, _ report) bool { return !v.IsMember(id) })
}

// run tries to reach candidates until ctx ends.
func (a *admission) run(ctx context.Context) {
	var tries sync.WaitGroup
	defer tries.Wait()
	tick := time.NewTicker(knockEvery)
	defer tick.Stop()
	for {
		for _, c := range a.due() {
			tries.Go(func() { a.try(ctx, c) })
		}
		for _, s := range a.dueSuspects() {
			tries.Go(func() { a.suspect(ctx, s) })
		}
		a.tell()
		select {
		case <-ctx.Done():
			return
		case <-a.kick:
		case <-tick.C:
		}
	}
}

// due returns the candidates that this node, if it is a member, is to try to reach now.
func (a *admission) due() (due []*candidate) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.view.IsMember(a.self) {
		return nil
	}
	for _, c := range a.candidates {
		if !c.trying && c.node.ID != a.self {
			c.trying = true
			due = append(due, c)
		}
	}
	return due
}

// try finds out whether this node reaches a candidate.
func (a *admission) try(ctx context.Context, c *candidate) {
	ahead, err := a.greeter.Knock(ctx, a.dial, c.node.Member())
	f := finding{reached: err == nil, ahead: ahead}
	if err != nil {
		f.reason = strings.ToValidUTF8(err.Error()[:min(len(err.Error()), maxReason)], "")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	c.trying = false
	if ctx.Err() == nil {
		c.tried, c.found, c.foundAt = true, f, time.Now()
	}
}

// tell logs, once for each candidate, which members do not reach it, or that its clock is too far from theirs.
func (a *admission) tell() {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.lackingLocked(now) {
		if c := a.candidates[l.Node.Member().life()]; !c.logged {
			c.logged = true
			what := "a node that would join is not reached by the members that must reach it"
			if l.IsClockTooFar() {
				what = "a node that would join has a clock that is too far from most members'"
			}
			a.log.Warn(what, "id", l.Node.ID, "address", l.Node.Address, "reason", l.Describe())
		}
	}
}

// say returns what this node, if it is a member, has to report of candidates.
func (a *admission) say() (all []*peerv1.Finding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.view.IsMember(a.self) {
		return nil
	}
	for l, c := range a.candidates {
		if c.tried {
			all = append(all, &peerv1.Finding{Id: l.ID, Incarnation: l.Incarnation, Reached: c.found.reached, Reason: c.found.reason, Ahead: int64(c.found.ahead)})
		}
	}
	for _, l := range a.accusesLocked(time.Now()) {
		all = append(all, &peerv1.Finding{Id: l.ID, Incarnation: l.Incarnation, Accused: true})
	}
	return all
}

// hear records what the node of that id reports.
func (a *admission) hear(from string, findings []*peerv1.Finding) {
	r := report{at: time.Now(), findings: make(map[Life]finding)}
	for _, f := range findings[:min(len(findings), 2*maxCandidate)] {
		reason := f.GetReason()
		r.findings[Life{ID: f.GetId(), Incarnation: f.GetIncarnation()}] = finding{f.GetReached(), reason[:min(len(reason), maxReason)], f.GetAccused(), time.Duration(f.GetAhead())}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.view.IsMember(from) && from != a.self {
		a.reports[from] = r
	}
}

// findingOf returns what a member has found of a candidate; known says whether it has lately said so.
func (a *admission) findingOf(by string, c *candidate, now time.Time) (f finding, known bool) {
	if by == a.self {
		return c.found, c.tried && now.Sub(c.foundAt) < reportKnown
	}
	r := a.reports[by]
	f, known = r.findings[c.node.Member().life()]
	return f, known && now.Sub(r.at) < reportKnown
}

// electors returns the ids of the members that count where a candidate of that id is to be admitted: those that stay, and that are
// alive as far as the registry or this node knows.
func (a *admission) electors(id string) (ids []string) {
	for _, m := range a.view.Members {
		registered := slices.ContainsFunc(a.nodes, func(n Node) bool { return n.ID == m.ID })
		if !m.Leaving && m.ID != id && (registered || m.ID == a.self || a.reaches(m.ID)) {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// quorum returns how many members must have reached a candidate.
func quorum(members int) int {
	if members < 3 {
		return members
	}
	return members/2 + 1
}

// lacks returns the members that count and are not known to reach a candidate, if these are too many, or else those from whose clocks its clock is too far,
// if they are most.
func (a *admission) lacks(c *candidate, now time.Time) (lack []Lack) {
	var far []Lack
	electors := a.electors(c.node.ID)
	for _, by := range electors {
		switch f, known := a.findingOf(by, c, now); {
		case !known:
			lack = append(lack, Lack{By: by})
		case !f.reached:
			lack = append(lack, Lack{By: by, Reason: f.reason})
		case ClockDifference{Ahead: f.ahead}.TooFar():
			far = append(far, Lack{By: by, Ahead: f.ahead})
		}
	}
	switch {
	case len(electors)-len(lack) < quorum(len(electors)):
		return append(lack, far...)
	case 2*len(far) > len(electors):
		return far
	}
	return nil
}

// Admits implements Electorate.
func (a *admission) Admits(n Node) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.candidates[n.Member().life()]
	return c != nil && len(a.lacks(c, time.Now())) == 0
}

// Lack is a member that is not known to reach a candidate, or from whose clock that of the candidate is too far.
type Lack struct {
	By     string        // the member's id
	Reason string        // why it does not reach the candidate, "" if it has not said anything of it
	Ahead  time.Duration // by how much the candidate's clock is ahead of the member's, if that is too far; else 0
}

// Unreached is a node that would be a member and is none, because members do not reach it, or because its clock is too far from theirs.
type Unreached struct {
	Node Node
	By   []Lack // at least one
}

// IsClockTooFar reports whether members reach the node, and its clock is what is in the way.
func (u Unreached) IsClockTooFar() bool {
	return !slices.ContainsFunc(u.By, func(l Lack) bool { return l.Ahead == 0 })
}

// Describe says which members do not reach the node, and where, or how far its clock is from theirs.
func (u Unreached) Describe() string {
	var silent []string
	var reasons []string
	for _, l := range u.By {
		switch {
		case l.Ahead != 0:
			reasons = append(reasons, fmt.Sprintf("its clock is %v from node %s's, more than %v", l.Ahead.Abs().Round(time.Millisecond), l.By, MaxClockDifference))
		case l.Reason == "":
			silent = append(silent, l.By)
		default:
			reasons = append(reasons, fmt.Sprintf("node %s does not reach it at %s (%s)", l.By, u.Node.Address, l.Reason))
		}
	}
	if len(silent) > 0 {
		reasons = append(reasons, fmt.Sprintf("not reported to reach it at %s: %s", u.Node.Address, strings.Join(silent, ", ")))
	}
	return strings.Join(reasons, "; ")
}

// lackingLocked returns the candidates that have not been reached for a while, sorted by id.
func (a *admission) lackingLocked(now time.Time) (all []Unreached) {
	for _, c := range a.candidates {
		switch lack := a.lacks(c, now); {
		case len(lack) == 0:
			c.since = now
		case now.Sub(c.since) >= lackNamed:
			all = append(all, Unreached{Node: c.node, By: lack})
		}
	}
	slices.SortFunc(all, func(x, y Unreached) int { return cmp.Compare(x.Node.ID, y.Node.ID) })
	return all
}

// Unreached returns the nodes that would be members and that too few members have reached for a while, sorted by id.
func (a *admission) Unreached() []Unreached {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lackingLocked(time.Now())
}
