package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/cluster"
)

// problem is something that an operator should look at.
type problem struct {
	// subject says what it is about, in a few words. It stays the same as long as the problem does, and no two have the same one.
	subject string
	text    string // one sentence; its numbers may change while the problem lasts
}

func problemAbout(subject, format string, args ...any) problem {
	return problem{subject, fmt.Sprintf(format, args...)}
}

// Problems implements api.Status.
func (n *node) Problems() (texts []string) {
	for _, p := range n.problems() {
		texts = append(texts, p.text)
	}
	return texts
}

// problems returns what is wrong at the moment.
func (n *node) problems() (problems []problem) {
	now := time.Now()
	if n.offline.Load() {
		problems = append(problems, problem{"started without etcd", "this node has started without etcd, from the state of its last run, and is not registered in etcd yet: it forwards checks, and its rules are those of its last run"})
	} else if !n.isMember() {
		problems = append(problems, problem{"not a member of the view", "this node is not a member of the view: it only forwards checks"})
	}
	if err := n.ownAddress.Load(); err != nil {
		problems = append(problems, problemAbout("this node does not answer at the address that it advertises", "this node does not answer at the address that it advertises, %s, so that other nodes may not join: %v; look at its --advertise", n.opts.Advertise, *err))
	}
	for _, u := range n.owners.Unreached() {
		until, lookAt := "until enough members reach it", "look at its --advertise, and at what is between the nodes"
		if u.IsClockTooFar() {
			until, lookAt = "while its clock differs from most members'", "set its machine's clock, as with NTP, and start it again"
		}
		problems = append(problems, problemAbout("node "+u.Node.ID+" is ready, and no member", "node %s is ready, and no member %s: %s; %s", u.Node.ID, until, u.Describe(), lookAt))
	}
	if left := n.membership.LeftOut(); left > 0 {
		problems = append(problems, problemAbout("no room in the ring", "the ring has no room for %d more nodes: they only forward checks", left))
	}
	if died := n.etcdDied.Load(); died != nil {
		problems = append(problems, problemAbout("the embedded etcd has died", "the embedded etcd has died, so that nodes cannot join or leave, nor rules change, until this one is restarted; checks go on: %v", *died))
	} else if st := n.registry.Status(); !st.Reachable {
		problems = append(problems, problem{"etcd does not answer", "etcd does not answer: nodes cannot join or leave, and rules cannot change; checks go on"})
	} else if st.Wiped {
		problems = append(problems, problem{"etcd was wiped", st.Alarm + "; checks go on, and weir view import writes this node's state of the cluster to it"})
	} else if st.Alarm != "" {
		problems = append(problems, problem{"etcd lacks what this node knows", st.Alarm})
	}
	if err := n.state.Err(); err != nil {
		problems = append(problems, problemAbout("the state cannot be written to disk", "this node could not start while etcd is unreachable, because its state cannot be written to disk: %v", err))
	}
	if text := n.snapshots.problem(); text != "" {
		problems = append(problems, problem{"the counters cannot be written to disk", text})
	}
	if err := n.rules.Err(); err != nil {
		problems = append(problems, problemAbout("the newest rules are invalid", "the newest rules are invalid, so the rules before them stay in force: %v", err))
	}
	problems = append(problems, n.xdsProblems(now)...)
	problems = append(problems, n.rlsProblems(now)...)
	if others := n.othersRules(); len(others) > 0 {
		problems = append(problems, problemAbout("other rules on other nodes", "other rules than this node's are in force on %s, because some nodes have rules of their own (--rules or --xds-server): what applies to a check depends on the node that is asked", strings.Join(others, ", ")))
	}
	if text := n.evictions.problem(); text != "" {
		problems = append(problems, problem{"counters in use were dropped", text})
	}
	problems = append(problems, n.certProblems(now)...)
	problems = append(problems, n.doubts()...)
	for _, d := range n.owners.Clocks() {
		if d.TooFar() {
			problems = append(problems, problemAbout("the clock of node "+d.ID, "%s, more than %v: windows begin at other times there, and tokens may be granted again when counters move between the two nodes; set the wrong clock, as with NTP, and restart its node", formatClock(d), cluster.MaxClockDifference))
		}
	}
	members, reachable := n.router.Members()
	for i, m := range members {
		if !reachable[i] {
			problems = append(problems, problemAbout("node "+m.ID+" does not answer", "node %s at %s does not answer: its standbys decide its keys, and if they do not answer either, the on_failure of the rules", m.ID, m.Address))
		}
	}
	for _, s := range n.greeter.Strangers() {
		problems = append(problems, problem{s, s + ": this node exchanges no checks with it"})
	}
	return problems
}

// doubts says which members keep others from changing, and which may grant on their own.
func (n *node) doubts() (problems []problem) {
	missing, givenUp := n.owners.Doubts()
	for _, l := range missing {
		problems = append(problems, problemAbout(fmt.Sprintf("node %s (incarnation %d) may not know the members", l.ID, l.Incarnation), "node %s (incarnation %d) is not known to have adopted the last change of members: until half of the members have, or 30 s are over, members do not change, and copies decide for nodes that are gone; if it is dead, start it again, or remove it (weir nodes remove %s)", l.ID, l.Incarnation, l.ID))
	}
	for _, l := range givenUp {
		problems = append(problems, problemAbout(fmt.Sprintf("node %s (incarnation %d) was given up", l.ID, l.Incarnation), "node %s (incarnation %d) was given up although fewer than half of the members had adopted the view without it: if it runs, cut off from etcd and this node, it may grant the limits of its keys once more; stop it, or start it again", l.ID, l.Incarnation))
	}
	return problems
}

// othersRules returns the ids of the nodes that run other rules than this one, and
// will go on to: with the registry's rules on both, one of them is about to follow.
func (n *node) othersRules() (ids []string) {
	self := n.Self()
	for _, other := range n.Nodes() {
		if other.ID != self.ID && other.RulesHash != self.RulesHash && (other.OwnRules || self.OwnRules) {
			ids = append(ids, other.ID)
		}
	}
	return ids
}
