// Package dev runs a whole cluster on one machine, whose nodes are killed, cut off and started again by typing.
//
// Run starts an etcd and the nodes as processes of their own, from the binary that it runs in. Console reads
// commands, one a line. The nodes reach each other and etcd through a Proxy, to which they connect with Dialer: it
// knows which node has dialed which, and forwards nothing between nodes that are cut. Clients reach the nodes directly.
package dev

import "time"

// Bounds of a cluster, and of what is typed.
const (
	MaxNodes    = 9
	MaxRate     = 20_000 // checks per second
	maxLine     = 4096   // bytes
	maxInFlight = 2000   // checks of a load that wait for their answers
)

// Times of a cluster.
const (
	startPatience = time.Minute            // until the cluster is whole, and for the command wait
	listPatience  = time.Second            // for a node to list its members
	lookEvery     = 100 * time.Millisecond // at the nodes
	askPatience   = 30 * time.Second       // for a command of weir
)
