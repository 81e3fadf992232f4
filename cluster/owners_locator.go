package cluster

import (
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// locator tells the router what Owners knows of the counters that this node does not have.
type locator struct{ *Owners }

// OwnerOf implements Locator.
func (o locator) OwnerOf(p uint32) (id string, known bool) {
	l := o.node.Decider(p)
	return l.ID, l != view.Life{}
}

// IsGrantable implements Locator.
func (o locator) IsGrantable(p uint32) bool { return o.node.IsGrantable(p) }

// DecidesProvisionally implements Locator.
func (o locator) DecidesProvisionally(p uint32) bool { return o.node.DecidesProvisionally(p) }

// StandIn implements Locator.
func (o locator) StandIn(p uint32) string {
	if lives := o.standIns.all(); lives != nil {
		return lives[p].ID
	}
	return ""
}

// ReturnGranted implements Locator.
func (o locator) ReturnGranted(take shard.Take) string {
	p := take.Key.Partition(uint32(o.params.Partitions))
	if !o.node.GrantsAreAdded(p) {
		return ""
	}
	id, _ := o.OwnerOf(p)
	return id
}

// Returning implements Locator.
func (o locator) Returning() <-chan struct{} { return o.node.Returning() }

// WasStopped implements Locator.
func (o locator) WasStopped() bool { return o.node.WasHalted() }
