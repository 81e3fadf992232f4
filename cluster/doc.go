// Package cluster provides the counters of a whole cluster as if they were one:
// it knows who is alive and who owns a key, and asks the owner.
//
// A question walks through Router.Decide to the local shard or, over a link to a peer, to
// the shard of the one node that has the key. Who does not have it says who does, and the
// router asks there. Only a standby, asked because the owner does not answer, asks
// others itself, and only for what they have.
package cluster
