package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// acquire does what can be done at the moment for the partitions that this node should hold: it
// creates tenures that no node has held before, fetches what others hold, and recovers what was lost.
func (k *Ownership) acquire(ctx context.Context) {
	k.confirmAll(ctx)
	k.mu.Lock()
	view := k.number()
	k.mu.Unlock()
	wanted := k.createOrWant()
	bare, owed := k.bare(wanted), k.owed()
	if len(wanted)+len(bare)+len(owed) == 0 {
		k.sought.Store(view)
		return
	}
	found, all := k.locate(ctx, slices.Concat(wanted, bare, owed))
	k.noteCopiesElsewhere(found[len(wanted)+len(bare):])
	k.noteCopies(found[:len(wanted)+len(bare)], all)
	k.sought.Store(view)
	k.createLost(ctx, found[:len(wanted)+len(bare)], all)
	found = found[:len(wanted)]
	k.fetch(ctx, found)
	if all {
		k.refoundLost(ctx, found)
	}
}

// Sought reports whether this node has looked, since it has its view, who else has what it should have.
func (k *Ownership) Sought() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.view != nil && k.sought.Load() >= k.view.Number
}

// bare returns the partitions of which this node is the standby without a whole copy. Their owner sends
// it, if it holds them; if no node does, others may have copies, from before this node was the standby. It
// does not matter whether the view knows of this life of the node: it may have started without etcd. What is wanted
// anyway is none of them: each is looked for, and fetched, once.
func (k *Ownership) bare(wanted []uint32) (partitions []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view == nil || k.over {
		return nil
	}
	for p := range k.parts {
		pt, r := &k.parts[p], k.view.Ring
		owner, standby := k.view.Members[r.Owner(uint32(p))].ID, k.view.Members[r.Standby(uint32(p))].ID
		if standby == k.Self.ID && owner != k.Self.ID && pt.tenure.state == absent && !(pt.copy.whole && pt.fresh) && !isIn(wanted, uint32(p)) {
			partitions = append(partitions, uint32(p))
		}
	}
	return partitions
}

// isIn reports whether p is one of some partitions in ascending order.
func isIn(partitions []uint32, p uint32) bool {
	_, found := slices.BinarySearch(partitions, p)
	return found
}

// owed returns the partitions of which this node, which leaves, has a copy that others may need.
func (k *Ownership) owed() (partitions []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view == nil || k.over || !k.leaving() {
		return nil
	}
	for p := range k.parts {
		if k.parts[p].copy.whole && k.owesCopy(uint32(p)) {
			partitions = append(partitions, uint32(p))
		}
	}
	return partitions
}

// noteCopiesElsewhere records what of this node's copies others have as well.
func (k *Ownership) noteCopiesElsewhere(found []whereabouts) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range found {
		w := &found[i]
		pt := &k.parts[w.partition]
		pt.elsewhere = pt.elsewhere || w.owner != nil || w.sealed != nil || w.matched
	}
}

// noteCopies records which members have copies of what no member holds that could be asked; all says whether all members could.
func (k *Ownership) noteCopies(found []whereabouts, all bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range found {
		w := &found[i]
		pt := &k.parts[w.partition]
		if w.lacks && pt.from == w.from {
			pt.from = ""
		}
		switch {
		case w.owner != nil, w.sealed != nil:
		case w.standby != nil:
			pt.copyAt, pt.last, pt.fresh = w.standby.party(), false, false
		case k.leavesToOthers(w): // the owner of the copy is asked through the members that reach it
		case w.best != nil && w.bestCopy.whole:
			pt.copyAt, pt.last = w.best.party(), false
		default:
			pt.last = true
			if all {
				pt.copyAt, pt.fresh = party{}, pt.copy.whole
			}
			if !pt.restarted { // what is decided from it is all there is
				pt.copy.term, pt.copy.whole = max(pt.copy.term, 1), true
			}
			k.Shard.Withhold(w.partition, false)
		}
	}
}

// leavesToOthers reports whether the member that is believed to have the copy that this node lacks has not answered it, but does answer
// others: what else there is is older.
func (k *Ownership) leavesToOthers(w *whereabouts) bool {
	at := k.parts[w.partition].copyAt.id
	return slices.Contains(w.silent, at) && k.isReached(at)
}

// createOrWant returns the partitions that this node should hold and does not. On the way it makes
// those that no node has held before.
func (k *Ownership) createOrWant() (wanted []uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view == nil || k.over {
		return nil
	}
	for p := range k.parts {
		pt := &k.parts[p]
		if pt.tenure.state == active || pt.pulling || pt.over {
			continue
		}
		switch c := k.claim(uint32(p)); {
		case c.epoch == 1 && pt.tenure.mayCreate(c): // no node can have a copy
			k.create(uint32(p), c.epoch)
		case c.owner == k.ownParty, pt.fetch != "", pt.tenure.mayCreate(c):
			wanted = append(wanted, uint32(p))
		}
	}
	return wanted
}

// create creates the tenure of an epoch and opens its partition. It is false if a view has come meanwhile by which it must not.
func (k *Ownership) create(p uint32, epoch uint64) bool {
	c, had := k.claim(p), k.parts[p].copy
	if c.epoch != epoch || !k.parts[p].tenure.create(c) {
		return false
	}
	k.open(p)
	k.Logger.Debug("tenure created", "partition", p, "term", k.parts[p].tenure.term, "copy", had)
	return true
}

// whereabouts is what the members have of one partition.
type whereabouts struct {
	partition uint32
	epoch     uint64       // of the view before the members were asked
	safe      bool         // no node can decide with an older tenure than that epoch's any more; since then
	owner     *otherMember // the member that holds it, or has sealed it for this node; nil if none
	heat      uint64
	pending   bool           // a member is about to hold it
	sealed    *otherMember   // the member that has sealed it for another node
	to        party          // that other node
	from      string         // the member that is believed to hold it
	lacks     bool           // whether that one has said that it does not
	own       copyVersion    // this node's copy
	best      *otherMember   // the member that has the best copy; nil if that is this node
	bestCopy  copyVersion    // of that
	bestEnds  bool           // whether that one is about to end
	grantors  []*otherMember // the members that have granted something from their copies
	silent    []string       // the members that have not answered
	matched   bool           // whether another member has a whole copy that is as good as this node's
	standby   *otherMember   // the standby, if this node is the owner and that has such a copy: it decides, as two would count apart
}

// locate asks all members what they have of partitions. all reports whether all have answered,
// by this node's view.
func (k *Ownership) locate(ctx context.Context, partitions []uint32) (found []whereabouts, all bool) {
	k.mu.Lock()
	view, number := k.view, k.view.Number
	found = make([]whereabouts, len(partitions))
	for i, p := range partitions {
		epoch := k.claim(p).epoch
		found[i] = whereabouts{partition: p, from: k.parts[p].from, own: k.copyOf(p), bestCopy: k.copyOf(p), epoch: epoch, safe: k.fenced(epoch)}
	}
	var peers []*otherMember
	for _, m := range view.Members {
		if c := k.peers[m.ID]; c != nil {
			peers = append(peers, c)
		}
	}
	k.mu.Unlock()
	answers := make([]*peerv1.LocateResponse, len(peers))
	var wg sync.WaitGroup
	for i, c := range peers {
		wg.Go(func() {
			patience := callTimeout
			if !k.Router.Reaches(c.member.ID) {
				patience = strangerTimeout
			}
			resp, err := c.locate(ctx, k, partitions, patience)
			if err == nil && len(resp.GetPartitions()) == len(partitions) {
				answers[i] = resp
			}
		})
	}
	wg.Wait()
	all = true
	var silent []string
	for i, resp := range answers {
		if resp == nil || resp.GetView() != number {
			all = false
		}
		if resp == nil {
			silent = append(silent, peers[i].member.ID)
			continue
		}
		k.learn(peers[i].member.life(), resp.GetView(), nil)
		for j, l := range resp.GetPartitions() {
			found[j].note(peers[i], l, k.ownParty, view)
		}
	}
	for j := range found {
		found[j].silent = silent
	}
	return found, all
}

// note records what a member has. Of copies that are as good as each other the owner's and the standby's come first: no node
// has to fetch them. What a node has that is about to end is of no use until it is fetched, and comes last.
func (w *whereabouts) note(c *otherMember, l *peerv1.Located, self party, view *View) {
	to := party{l.GetTo(), l.GetToIncarnation()}
	switch l.GetState() {
	case peerv1.ReplicaState_REPLICA_STATE_ACTIVE:
		w.owner, w.heat = c, l.GetHeat()
	case peerv1.ReplicaState_REPLICA_STATE_SEALED:
		if to == self {
			w.owner, w.heat = c, l.GetHeat()
		} else {
			w.sealed, w.to = c, to
		}
	case peerv1.ReplicaState_REPLICA_STATE_PENDING:
		w.pending = true
	case peerv1.ReplicaState_REPLICA_STATE_ABSENT:
		w.lacks = w.lacks || c.member.ID == w.from
	case peerv1.ReplicaState_REPLICA_STATE_UNSPECIFIED: // never sent
	}
	v := copyVersion{
		term: Term(l.GetTerm()), seq: l.GetSequence(), whole: l.GetWhole(),
		snapshot: SnapshotVersion{l.GetSnapshotTerm(), l.GetSnapshotSequence()},
	}
	if v.term > 0 && v.seq&granted != 0 {
		w.grantors = append(w.grantors, c)
	}
	asGood := v.whole && !l.GetEnding() && v.compare(w.own) >= 0
	owner, standby := view.Members[view.Ring.Owner(w.partition)].ID, view.Members[view.Ring.Standby(w.partition)].ID
	w.matched = w.matched || asGood
	if asGood && owner == self.id && standby == c.member.ID {
		w.standby = c
	}
	better := v.compare(w.bestCopy)
	if better == 0 && w.best != nil && !l.GetEnding() && (w.bestEnds || c.member.ID == owner || c.member.ID == standby) {
		better = 1
	}
	if v.term > 0 && better > 0 {
		w.best, w.bestCopy, w.bestEnds = c, v, l.GetEnding()
	}
}

// fetch pulls what other members hold, the busiest partitions first, until there may be more to do. Checks are decided
// all the while, and are not to wait for the processor: so it takes its time, the more the longer a partition takes, and
// the more others fetch from the same member.
func (k *Ownership) fetch(ctx context.Context, found []whereabouts) {
	slices.SortStableFunc(found, func(a, b whereabouts) int { return cmp.Compare(b.heat, a.heat) })
	var pulls errgroup.Group
	pulls.SetLimit(pullsAtOnce)
	var silent sync.Map     // owners that do not answer
	var lately atomic.Int64 // nanoseconds that a pull took
	begun := 0
	from := make(map[*otherMember]int) // how many partitions
	for i := range found {
		from[found[i].owner]++
	}
	for i := range found {
		w := &found[i]
		switch _, skip := silent.Load(w.owner); {
		case skip, begun >= pullsAtOnce && len(k.kick) > 0:
		case w.owner != nil:
			if begun++; begun > 1 {
				k.pauseFetch(ctx, w.owner, time.Duration(lately.Load()), from[w.owner])
			}
			pulls.Go(func() error {
				began := time.Now()
				if err := k.pull(ctx, w.partition, w.owner); status.Code(err) == codes.Unavailable || errors.Is(err, context.DeadlineExceeded) {
					silent.Store(w.owner, true)
					k.look() // others may have copies
				}
				lately.Store(int64(time.Since(began)))
				return nil
			})
		case w.sealed != nil:
			k.nudge(ctx, w)
		}
	}
	_ = pulls.Wait() // they return nothing
}

// pauseFetch waits before one more of so many partitions is fetched from a member, where the last one took so long.
func (k *Ownership) pauseFetch(ctx context.Context, from *otherMember, took time.Duration, partitions int) {
	fetching := 1
	k.mu.Lock()
	if i, member := k.view.Index(from.member.ID); member && k.view.Members[i].Leaving {
		fetching = max(1, len(k.view.Members)-1) // all others
	}
	k.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-time.After(fetchPause(took, fetching, partitions)):
	}
}

// fetchPause returns how long to wait before one more of so many partitions is fetched from a member from which so many
// members fetch, where the last one took so long.
func fetchPause(took time.Duration, fetching, partitions int) time.Duration {
	pause := time.Duration(fetching) * min(max(fetchRest*took, fetchEvery), fetchEveryMost)
	return min(pause, fetchPauseMost, fetchWithin/time.Duration(partitions))
}

// nudge tells the node for which a partition was sealed to fetch it: the view has given it to
// this one meanwhile.
func (k *Ownership) nudge(ctx context.Context, w *whereabouts) {
	k.mu.Lock()
	c := k.peers[w.to.id]
	k.mu.Unlock()
	if c != nil {
		c.nudge(ctx, k, w.partition, w.sealed.member.ID)
	}
}

// pull fetches a partition, installs its tenure, and confirms that.
func (k *Ownership) pull(ctx context.Context, p uint32, from *otherMember) error {
	if !k.begin(p) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	term, added, err := k.stream(ctx, from, &peerv1.PullRequest{Partition: p})
	failpoint("installs")
	k.mu.Lock()
	pt := &k.parts[p]
	pt.pulling = false
	if err == nil {
		held, fresh := pt.tenure.install(k.claim(p), term)
		if fresh {
			for _, d := range added {
				k.added[grantor{d.GetId(), p}] = delivery{d.GetIncarnation(), d.GetBatch()}
			}
			k.open(p)
			k.metrics.installed.Inc()
			k.Logger.Debug("partition installed", "partition", p, "from", from.member.ID, "term", term)
		}
		if held || pt.tenure.seen >= term {
			pt.fetch = ""
			pt.receipt = receipt{from.party(), term}
		}
	}
	k.mu.Unlock()
	if err != nil {
		k.Logger.Debug("partition not fetched", "partition", p, "from", from.member.ID, "error", err)
		return err
	}
	k.confirm(ctx, p)
	return nil
}

// begin reports whether this node should still fetch p, and notes that it does.
func (k *Ownership) begin(p uint32) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	if pt.pulling || pt.posting || pt.tenure.state == active {
		return false
	}
	pt.pulling = true
	return true
}

// stream lays what from is asked for over what is here, and returns the term of it, and which grants from has added if it holds p.
func (k *Ownership) stream(ctx context.Context, from *otherMember, what *peerv1.PullRequest) (term Term, added []*peerv1.Delivery, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also where it is left early
	p := what.GetPartition()
	what.Caller = k.caller(from)
	stream, err := from.client.Pull(ctx, what)
	if err != nil {
		return 0, nil, err
	}
	for {
		piece, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		k.noteAdded(p, piece.GetAdded())
		if err := k.Shard.Apply(p, piece.GetRecords()); err != nil {
			return 0, nil, fmt.Errorf("partition %d from %s: %w", p, from.member.ID, err)
		}
		if err := k.inherit(p, piece.GetGrants()); err != nil {
			return 0, nil, fmt.Errorf("grants of partition %d from %s: %w", p, from.member.ID, err)
		}
		if piece.GetLast() {
			return Term(piece.GetTerm()), piece.GetAdded(), nil
		}
	}
}

// noteAdded records which of this node's grants the owner of p has added: they are among what it sends.
func (k *Ownership) noteAdded(p uint32, added []*peerv1.Delivery) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range added {
		k.dropAdded(p, d)
	}
}

// inherit takes over grants that come with a copy: they are part of it, and the owner is to be
// told of them if it comes back.
func (k *Ownership) inherit(p uint32, encoded []byte) error {
	grants, err := parseGrants(encoded)
	if err != nil {
		return err
	}
	if !k.areOf(p, grants) {
		return fmt.Errorf("grants: one is not of partition %d", p)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.enclose(p, grants)
	return nil
}

// confirm tells the old owner that this node holds p. If that fails it is told again later.
func (k *Ownership) confirm(ctx context.Context, p uint32) {
	k.mu.Lock()
	r := k.parts[p].receipt
	c := k.peers[r.from.id]
	if c == nil || c.party() != r.from {
		k.parts[p].receipt = receipt{} // it is gone, and with it what it has sealed
		c = nil
	}
	k.mu.Unlock()
	if c == nil || r.term == 0 || c.confirm(ctx, k, p, r.term) != nil {
		return
	}
	k.mu.Lock()
	if k.parts[p].receipt == r {
		k.parts[p].receipt = receipt{}
	}
	k.mu.Unlock()
}

func (k *Ownership) confirmAll(ctx context.Context) {
	k.mu.Lock()
	var due []uint32
	for p := range k.parts {
		if k.parts[p].receipt.term > 0 {
			due = append(due, uint32(p))
		}
	}
	k.mu.Unlock()
	for _, p := range due {
		k.confirm(ctx, p)
	}
}

// createLost fetches copies of what no member holds that could be asked, to decide from them meanwhile,
// and creates tenures again, from the best copies, once no node can decide with the old ones any more.
func (k *Ownership) createLost(ctx context.Context, found []whereabouts, all bool) {
	var pulls errgroup.Group
	pulls.SetLimit(pullsAtOnce)
	for i := range found {
		w := &found[i]
		create := w.safe && k.mayRecover(w.partition, w.epoch, all)
		if !create && !k.lacksCopy(w) {
			continue
		}
		pulls.Go(func() error {
			if w.best != nil {
				if !k.begin(w.partition) { // what is being fetched is not complete
					return nil
				}
				if err := k.fetchCopy(ctx, w); err != nil {
					k.Logger.Debug("copy not fetched", "partition", w.partition, "from", w.best.member.ID, "error", err)
					return nil
				}
			}
			if create {
				k.mu.Lock()
				created := k.create(w.partition, w.epoch)
				k.mu.Unlock()
				if created {
					k.metrics.recovered.Inc()
				}
			}
			return nil
		})
	}
	_ = pulls.Wait() // they return nothing
}

// lacksCopy reports whether this node has no whole copy of what it should have, and a member has one that is not
// asked for it: neither owner nor standby. One that was restarted leaves it to its standby. Two copies would count apart.
func (k *Ownership) lacksCopy(w *whereabouts) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	pt, r := &k.parts[w.partition], k.view.Ring
	if w.owner != nil || w.sealed != nil || w.best == nil || !w.bestCopy.whole || pt.tenure.state != absent || pt.copy.whole && pt.fresh || pt.restarted {
		return false
	}
	if k.leavesToOthers(w) {
		return false
	}
	at := w.best.member.ID
	return w.bestEnds || at != k.view.Members[r.Owner(w.partition)].ID && at != k.view.Members[r.Standby(w.partition)].ID
}

// collect fetches what others have granted from copies that are not the best: it is part of none. A node that gives it
// grants nothing any more. It reports whether this node's copy was cleared for that.
func (k *Ownership) collect(ctx context.Context, w *whereabouts) (cleared bool) {
	for _, c := range w.grantors {
		if c == w.best {
			continue
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		_, _, err := k.stream(call, c, &peerv1.PullRequest{Partition: w.partition, Copy: true, Grants: true})
		cancel()
		cleared = true
		k.Logger.Debug("grants fetched", "partition", w.partition, "from", c.member.ID, "error", err)
	}
	if cleared {
		k.Shard.Clear(w.partition) // and nothing is left but what was granted: the copy is laid down with that
	}
	return cleared
}

// fetchCopy fetches the best copy of a partition, and what others have granted.
func (k *Ownership) fetchCopy(ctx context.Context, w *whereabouts) error {
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	cleared := k.collect(ctx, w)
	_, _, err := k.stream(ctx, w.best, &peerv1.PullRequest{Partition: w.partition, Copy: true})
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[w.partition]
	pt.pulling = false
	if err == nil {
		pt.copy, pt.fresh = w.bestCopy, true
		k.Shard.Withhold(w.partition, false)
		pt.copy.seq &^= granted
		k.Logger.Debug("copy fetched", "partition", w.partition, "from", w.best.member.ID, "copy", pt.copy)
	} else if cleared {
		pt.copy = copyVersion{}
	}
	return err
}

// mayRecover reports whether this node is to create the tenure of p in that epoch, still, and all members have
// said which copies they have, or had their time to.
func (k *Ownership) mayRecover(p uint32, epoch uint64, all bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	c, since := k.claim(p), k.unconfirmed[epoch]
	overdue := !since.IsZero() && time.Since(since) >= decisionLeaseTime+fenceSlack+recoverPatience
	return c.epoch == epoch && k.parts[p].tenure.mayCreate(c) && (all || overdue)
}

// refoundLost has a new epoch begun for those partitions that no member has.
func (k *Ownership) refoundLost(ctx context.Context, found []whereabouts) {
	k.mu.Lock()
	view := k.view
	var lost []uint32
	for i := range found {
		w := &found[i]
		pt := &k.parts[w.partition]
		c := k.claim(w.partition)
		if w.owner != nil || w.pending || pt.tenure.state == active || pt.pulling || pt.tenure.mayCreate(c) || c.owner != k.ownParty {
			continue
		}
		if j, member := view.Index(w.to.id); w.sealed != nil && member && view.partyAt(j) == w.to {
			continue // it will fetch it
		}
		lost = append(lost, w.partition)
	}
	k.mu.Unlock()
	if len(lost) == 0 {
		return
	}
	err := k.Refound(ctx, view.Number, lost)
	if err != nil && !errors.Is(err, ErrViewChanged) {
		k.Logger.Warn("partitions that no node holds cannot be created again", "partitions", len(lost), "error", err)
	} else if err == nil {
		k.Logger.Warn("partitions that no node holds are created again", "partitions", len(lost))
	}
}
