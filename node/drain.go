package node

import (
	"errors"

	"github.com/weirlimit/weir/cluster"
)

// Drain implements api.Status.
func (n *node) Drain(cancel bool) error {
	n.draining.Lock()
	defer n.draining.Unlock()
	if n.leaving.Load() {
		return errors.New("the node is about to stop")
	}
	if !cancel && !n.othersReady() {
		return errors.New("no other node is ready to take over what this one holds")
	}
	n.drained.Store(!cancel)
	n.setServing(cancel && n.isMember() && n.hasRules())
	state := cluster.Leaving
	if cancel {
		state = cluster.Ready
	}
	n.announce(func(self *cluster.Node) { self.State = state })
	n.log.Info("draining", "id", n.opts.ID, "cancelled", cancel)
	return nil
}
