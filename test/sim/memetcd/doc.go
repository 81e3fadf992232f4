// Package memetcd provides an etcd in memory, of one member, that serves etcd's real
// gRPC protocol on any listener and runs in virtual time inside testing/synctest. It
// can be stopped, wiped, paused and left without a leader.
//
// It answers as etcd does what package cluster/etcd asks, and what it takes to check
// that: keys with all their versions, flat transactions, compaction, leases, watches.
// One conformance suite runs against it and against the embedded etcd. It has no
// authentication, nested transactions, fragmented or periodic answers of watches, nor
// quotas; calls of services that are not here are refused as unimplemented.
package memetcd
