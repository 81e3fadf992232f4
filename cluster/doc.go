// Package cluster provides the counters of a whole cluster as if they were one:
// it knows who is alive and who owns a key, and asks the owner.
//
// A question walks through Router.Decide to the local shard or, over a peer's
// stream, to the shard of the one node that owns the key; never further.
package cluster
