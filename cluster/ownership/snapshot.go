package ownership

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// Snapshots are the copies of a Node, as they are kept while it does not run.
type Snapshots struct{ *Node }

// Save returns what this node has of a partition for a snapshot: records of the counters that matter after outlive, and how many there are.
// ok is false if it has no copy. Checks are decided meanwhile.
func (n Snapshots) Save(p uint32, outlive time.Duration, buf []byte) (version replica.Version, records []byte, counters int, ok bool) {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.replica.State == replica.Deciding {
		x.replica = x.replica.Granted() // what is in the snapshot is later than all that was fed
	}
	version = x.replica.Version
	if version.Term == 0 {
		return version, buf, 0, false
	}
	records, counters = n.Shard.Save(p, outlive, buf)
	return version, records, counters, true
}

// Forget takes back what Restore has laid down.
func (n Snapshots) Forget() {
	for x := range n.parts.each {
		x.forget()
	}
	n.expected, n.restored = nil, 0
}

// forget takes back what Restore has laid down. x.mu is held.
func (x *partition) forget() {
	x.trimBatches(x.replica.Deltas.Next)
	x.replica.Deltas.First = x.replica.Deltas.Next
	x.node.Shard.Clear(x.p)
	x.replica.State, x.replica.Version, x.in.search.restored = replica.None, replica.Version{}, false
}

// forgetLostViews takes back what Restore has laid down if the owner, which decides, feeds a copy of an earlier term. Views were lost then, and others have
// passed the terms of the snapshot without it, so that the writer of views did not see that. The copy would never be older than a feed. x.mu is held.
func (x *partition) forgetLostViews(from view.Life, m *Changes) {
	r := &x.replica
	if !x.in.search.restored || r.State != replica.Learning || m.FinalFor > 0 || from != r.Claim.Owner || m.Version.Term != r.Claim.Term ||
		r.Version.Term <= r.Claim.Term || r.Claim.Number < x.node.restored {
		return
	}
	x.node.Logger.Warn("counters of a snapshot not used: views were lost since it was written, and the cluster has counted on without it",
		"partition", x.p, "term", r.Version.Term, "owner", from.ID, "owner_term", m.Version.Term)
	x.forget()
}

// Expect says which lives were members when the snapshot was written that Restore lays down. It must be called before Adopt and Run.
func (n Snapshots) Expect(members []view.Life) { n.expected = members }

// Expected returns the lives that were members then, as long as this node has copies that Restore has laid down.
func (n Snapshots) Expected() []view.Life {
	if n.Restored() == 0 {
		return nil
	}
	return n.expected
}

// Restored returns the highest term of the copies that Restore has laid down.
func (n Snapshots) Restored() (term uint64) {
	for x := range n.parts.each {
		if x.in.search.restored {
			term = max(term, x.replica.Version.Term)
		}
	}
	return term
}

// Undelivered returns the grants of a partition that its owner is not known to have. Nothing is granted or delivered any more.
func (n Snapshots) Undelivered(p uint32) (grants []shard.Grant) {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.replica.State == replica.Deciding { // they are among its counters
		return nil
	}
	for _, b := range x.deltas.own.batches {
		if b.Number > x.deltas.own.added {
			grants = append(grants, b.Grants...)
		}
	}
	for more := n.Shard.TakeGrants(p, batchSize); len(more) > 0; more = n.Shard.TakeGrants(p, batchSize) {
		grants = append(grants, more...)
	}
	return grants
}

// Restore lays down what a snapshot has of a partition, with the grants that were undelivered, which are deltas of this life from now on. It must be called before
// Adopt and Run, once for each partition.
func (n Snapshots) Restore(p uint32, version replica.Version, records []byte, grants []shard.Grant) error {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := n.Shard.Apply(p, records); err != nil {
		return err
	}
	for i := range grants {
		if grants[i].Key.Partition(uint32(len(n.parts))) != p {
			return fmt.Errorf("grants: one is not of partition %d", p)
		}
	}
	for some := range slices.Chunk(grants, batchSize) {
		r, number := x.replica.GrantedFromCopy()
		x.replica = r
		x.deltas.own.batches = append(x.deltas.own.batches, Batch{number, some})
		n.batches.Add(1)
	}
	n.Shard.Underway(p, grants)
	x.replica.State, x.replica.Version, x.in.search.restored = replica.Learning, version, true
	x.node.restored = max(x.node.restored, version.Term)
	return nil
}
