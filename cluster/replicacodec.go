package cluster

import (
	"fmt"
	"slices"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// What nodes tell each other about copies of partitions, as messages of gRPC. Numbers that no node sends are refused, with the name of the field.

// maxDeltaMarks bounds the nodes whose deltas a copy knows of.
const maxDeltaMarks = 1 << 10

func wireChanges(m *ownership.Changes) *peerv1.Changes {
	w := &peerv1.Changes{
		Partition: m.Partition, Session: m.Session, Index: m.Index, Version: wireVersion(m.Version), Records: m.Records,
		Complete: m.Complete, Number: m.Number, FinalFor: m.FinalFor, ReadsBase: m.ReadsBase,
	}
	if m.Base != (replica.Version{}) {
		w.Base = wireVersion(m.Base)
	}
	for _, k := range m.Acknowledged {
		w.Acknowledged = append(w.Acknowledged, &peerv1.DeltaMark{Id: k.Life.ID, Incarnation: k.Life.Incarnation, Last: k.Last})
	}
	return w
}

func wireVersion(v replica.Version) *peerv1.CopyVersion {
	return &peerv1.CopyVersion{Term: v.Term, Sequence: v.Sequence}
}

func versionOf(w *peerv1.CopyVersion) replica.Version {
	return replica.Version{Term: w.GetTerm(), Sequence: w.GetSequence()}
}

func changesOf(w *peerv1.Changes, partitions int) (*ownership.Changes, error) {
	m := &ownership.Changes{
		Partition: w.GetPartition(), Session: w.GetSession(), Index: w.GetIndex(), Version: versionOf(w.GetVersion()), Records: w.GetRecords(),
		Complete: w.GetComplete(), Number: w.GetNumber(), FinalFor: w.GetFinalFor(), Base: versionOf(w.GetBase()), ReadsBase: w.GetReadsBase(),
	}
	switch marks := w.GetAcknowledged(); {
	case int(m.Partition) >= partitions:
		return nil, fmt.Errorf("partition: %d is not below %d", m.Partition, partitions)
	case m.Session == 0:
		return nil, fmt.Errorf("session: 0 of partition %d, the first is 1", m.Partition)
	case m.Index == 0:
		return nil, fmt.Errorf("index: 0 of partition %d, the first is 1", m.Partition)
	case len(marks) > maxDeltaMarks:
		return nil, fmt.Errorf("acknowledged: %d nodes, at most %d", len(marks), maxDeltaMarks)
	}
	for i, k := range w.GetAcknowledged() {
		if i > 0 && k.GetId() <= w.GetAcknowledged()[i-1].GetId() {
			return nil, fmt.Errorf("acknowledged: %q after %q, they are sorted by unique id", k.GetId(), w.GetAcknowledged()[i-1].GetId())
		}
		m.Acknowledged = append(m.Acknowledged, replica.Mark{Life: view.Life{ID: k.GetId(), Incarnation: k.GetIncarnation()}, Last: k.GetLast()})
	}
	return m, nil
}

// feedReceipts are the receipts as they travel, by receipt.
var feedReceipts = [...]peerv1.FeedReceipt{
	ownership.Taken:   peerv1.FeedReceipt_FEED_RECEIPT_TAKEN,
	ownership.Again:   peerv1.FeedReceipt_FEED_RECEIPT_AGAIN,
	ownership.Later:   peerv1.FeedReceipt_FEED_RECEIPT_LATER,
	ownership.Useless: peerv1.FeedReceipt_FEED_RECEIPT_USELESS,
	ownership.Fit:     peerv1.FeedReceipt_FEED_RECEIPT_FIT,
}

func wireReceipts(receipts []ownership.Receipt) (w []peerv1.FeedReceipt) {
	for _, r := range receipts {
		w = append(w, feedReceipts[r])
	}
	return w
}

func receiptsOf(w []peerv1.FeedReceipt) (receipts []ownership.Receipt, err error) {
	for _, r := range w {
		i := slices.Index(feedReceipts[:], r)
		if i < 0 {
			return nil, fmt.Errorf("receipts: %v is none", r)
		}
		receipts = append(receipts, ownership.Receipt(i))
	}
	return receipts, nil
}

func wirePosts(posts []ownership.Post) (w []*peerv1.PartitionDeltas) {
	for _, m := range posts {
		d := &peerv1.PartitionDeltas{Partition: m.Partition, Grantor: m.Grantor}
		for _, b := range m.Batches {
			d.Deltas = append(d.Deltas, &peerv1.DeltaBatch{Number: b.Number, Grants: appendGrants(nil, b.Grants)})
		}
		w = append(w, d)
	}
	return w
}

func postsOf(w []*peerv1.PartitionDeltas, partitions int) (posts []ownership.Post, err error) {
	if len(w) > partitions {
		return nil, fmt.Errorf("posts: %d, there are %d partitions", len(w), partitions)
	}
	for _, d := range w {
		m := ownership.Post{Partition: d.GetPartition(), Grantor: d.GetGrantor()}
		if int(m.Partition) >= partitions {
			return nil, fmt.Errorf("partition: %d is not below %d", m.Partition, partitions)
		}
		for _, b := range d.GetDeltas() {
			grants, err := parseGrants(b.GetGrants())
			if err != nil {
				return nil, fmt.Errorf("grants of delta %d of partition %d: %w", b.GetNumber(), m.Partition, err)
			}
			m.Batches = append(m.Batches, ownership.Batch{Number: b.GetNumber(), Grants: grants})
		}
		posts = append(posts, m)
	}
	return posts, nil
}

func requestsOf(w []*peerv1.CopyRequest, partitions int) (requests []ownership.Request, err error) {
	if len(w) > partitions {
		return nil, fmt.Errorf("requests: %d, there are %d partitions", len(w), partitions)
	}
	for _, q := range w {
		if int(q.GetPartition()) >= partitions {
			return nil, fmt.Errorf("partition: %d is not below %d", q.GetPartition(), partitions)
		}
		requests = append(requests, ownership.Request{Partition: q.GetPartition(), Term: q.GetTerm(), Salvages: q.GetSalvages()})
	}
	return requests, nil
}
