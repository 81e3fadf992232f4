package cluster

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// What no node sends is refused, with the name of the field.
func TestReplicaMessagesRefused(t *testing.T) {
	for _, tc := range []struct {
		change func(w *peerv1.Changes)
		want   string
	}{
		{func(w *peerv1.Changes) { w.Partition = 64 }, "partition: 64 is not below 64"},
		{func(w *peerv1.Changes) { w.Session = 0 }, "session: 0"},
		{func(w *peerv1.Changes) { w.Index = 0 }, "index: 0"},
		{func(w *peerv1.Changes) { w.Acknowledged = append(w.Acknowledged, w.Acknowledged[0]) }, `acknowledged: "a" after "b"`},
		{func(w *peerv1.Changes) { w.Acknowledged = make([]*peerv1.DeltaMark, maxDeltaMarks+1) }, "acknowledged: 1025 nodes"},
	} {
		w := wireChanges(someChanges())
		tc.change(w)
		if _, err := changesOf(w, 64); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("the error is %v, want %s", err, tc.want)
		}
	}
	if _, err := receiptsOf([]peerv1.FeedReceipt{peerv1.FeedReceipt_FEED_RECEIPT_TAKEN, 9}); err == nil || !strings.Contains(err.Error(), "receipts: 9") {
		t.Errorf("a receipt of 9: %v", err)
	}
	for name, posts := range map[string][]*peerv1.PartitionDeltas{
		"partition: 64 is not below 64":      {{Partition: 64}},
		"grants of delta 3 of partition 7":   {{Partition: 7, Deltas: []*peerv1.DeltaBatch{{Number: 3, Grants: []byte{1}}}}},
		"posts: 65, there are 64 partitions": make([]*peerv1.PartitionDeltas, 65),
	} {
		if _, err := postsOf(posts, 64); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the error is %v, want %s", err, name)
		}
	}
	if _, err := requestsOf([]*peerv1.CopyRequest{{Partition: 64}}, 64); err == nil || !strings.Contains(err.Error(), "partition: 64 is not below 64") {
		t.Errorf("a request for partition 64: %v", err)
	}
}

func someChanges() *ownership.Changes {
	return &ownership.Changes{
		Partition: 3, Session: 4, Index: 5, Version: replica.Version{Term: 6, Sequence: 7}, Records: []byte("records"), Complete: true, Number: 8, FinalFor: 9,
		Acknowledged: replica.Acknowledged{{Life: view.Life{ID: "a", Incarnation: 1}, Last: 2}, {Life: view.Life{ID: "b", Incarnation: 3}, Last: 4}},
	}
}

// What is sent arrives.
func TestReplicaMessages(t *testing.T) {
	sent := someChanges()
	got, err := changesOf(wireChanges(sent), 64)
	if err != nil || got.Partition != sent.Partition || got.Session != sent.Session || got.Index != sent.Index || got.Version != sent.Version ||
		!bytes.Equal(got.Records, sent.Records) || got.Complete != sent.Complete || got.Number != sent.Number || got.FinalFor != sent.FinalFor ||
		!slices.Equal(got.Acknowledged, sent.Acknowledged) {
		t.Errorf("%+v became %+v, %v", sent, got, err)
	}
	all := []ownership.Receipt{ownership.Taken, ownership.Again, ownership.Later, ownership.Useless, ownership.Fit}
	if got, err := receiptsOf(wireReceipts(all)); err != nil || !slices.Equal(got, all) {
		t.Errorf("%v became %v, %v", all, got, err)
	}
}
