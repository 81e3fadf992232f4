// Package cluster provides the counters of a whole cluster as if they were one: it knows the
// members and the owner of each key, and asks the owner.
//
// A request walks through Router.Decide to the local shard or, over a connection to a peer, to the
// shard of the one node that has the key. A node that does not have it replies with the id of the
// node that does, and the router asks there. Only a standby, asked because the owner does not
// answer, asks other nodes itself, and only about the counters that they own.
package cluster
