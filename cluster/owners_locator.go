package cluster

import (
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// OwnerOf implements Locator.
func (o *Owners) OwnerOf(p uint32) (id string, known bool) {
	l := o.node.Decider(p)
	return l.ID, l != view.Life{}
}

// IsGrantable implements Locator.
func (o *Owners) IsGrantable(p uint32) bool { return o.node.IsGrantable(p) }

// DecidesProvisionally implements Locator.
func (o *Owners) DecidesProvisionally(p uint32) bool { return o.node.DecidesProvisionally(p) }

// StandIn implements Locator.
func (o *Owners) StandIn(p uint32) string {
	if lives := o.standInsOf(); lives != nil {
		return lives[p].ID
	}
	return ""
}

// ReturnGranted implements Locator.
func (o *Owners) ReturnGranted(take shard.Take) string {
	p := take.Key.Partition(uint32(o.params.Partitions))
	if !o.node.GrantsAreAdded(p) {
		return ""
	}
	id, _ := o.OwnerOf(p)
	return id
}

// Returning implements Locator.
func (o *Owners) Returning() <-chan struct{} { return o.node.Returning() }

// WasStopped implements Locator.
func (o *Owners) WasStopped() bool { return o.node.WasHalted() }

var _ Locator = (*Owners)(nil)
