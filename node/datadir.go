package node

import (
	"context"

	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/rules"
)

// openState takes the data directory, and reads what an earlier run has left there.
func (n *node) openState(context.Context) (err error) {
	if n.state, err = etcd.OpenState(n.opts.DataDir, n.opts.Cluster, n.opts.ID, n.log); err == nil {
		n.closers = append(n.closers, n.state.Close)
	}
	return err
}

// keepRules has the rules kept as they are in force.
func (n *node) keepRules(*rules.Set) {
	if n.store != nil {
		stored := n.store.Stored()
		n.state.Keep(func(k *etcd.Known) { k.Rules = stored })
	}
}
