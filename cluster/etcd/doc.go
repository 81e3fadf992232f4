// Package etcd provides the cluster's registry in etcd, where nodes announce
// themselves and agree on views.
//
// Open connects to an etcd cluster, or to the one of this process that
// StartServer runs. Bootstrap fixes or reads the parameters of the cluster. Run
// then keeps the announced node alive under a lease, follows what etcd holds,
// and hands out a cluster.RegistryContent for every change; SwapView writes the next view,
// SwapRules the next rules.
//
// # Keys
//
//	/weir/<cluster>/nodes/<id>         JSON of cluster.Node, under the node's lease
//	/weir/<cluster>/view               what cluster.MarshalView writes
//	/weir/<cluster>/rules              the rules, of which this package knows nothing
//	/weir/<cluster>/params             JSON of cluster.Params, never changed
//	/weir/<cluster>/incarnations/<id>  decimal number of starts of that node
//
// # While etcd is unreachable
//
// Nothing is handed out, nothing is forgotten, and one line is logged when that
// begins and one when it ends. What etcd says afterwards is believed, with one
// exception: a view that is older than one already seen, or none at all, means
// that etcd was wiped or restored from a backup. The registry then keeps the
// view that it has and says so in Status.Alarm, until Restore gives etcd back what it
// had.
//
// A State keeps on disk what a node must know to start while etcd is unreachable. Open is
// told what was kept, and does without an answer then.
package etcd
